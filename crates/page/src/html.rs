//! The page as HTML: one file, with all that it shows, its style and its script.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::model::{Absent, Headline, LinkLosses};
use crate::numbers::{count, percent, rate, seconds};
use crate::page::{DrawnChart, Page};

const STYLE: &str =
    concat!(include_str!("../assets/uPlot.min.css"), "\n", include_str!("../assets/page.css"));

/// uPlot with its licence, then our own; they share nothing with other scripts, as there are none.
const SCRIPT: &str = concat!(
    "/*\nuPlot 1.6.32\n",
    include_str!("../LICENSE-uPlot"),
    "\n*/\n",
    include_str!("../assets/uPlot.iife.min.js"),
    "\n(() => {\n\"use strict\";\n",
    include_str!("../assets/format.js"),
    include_str!("../assets/gestures.js"),
    include_str!("../assets/symbols.js"),
    include_str!("../assets/chart.js"),
    include_str!("../assets/events.js"),
    include_str!("../assets/page.js"),
    "})();\n"
);

/// How every page begins.
const BEGIN: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
                     <meta name=\"generator\" content=\"ontempo show ";

/// Start-up delays in a row of the headline; if there are more, the smallest, the middle and the
/// largest are shown.
const MAX_LATE: usize = 4;

/// A larger share of late units is marked.
const MARKED_LATE: f64 = 0.01;

/// Whether a file that begins with `bytes` (at least 200, or all of it) is a page of ours.
#[must_use]
pub fn is_page(bytes: &[u8]) -> bool {
    bytes.starts_with(BEGIN.as_bytes())
}

/// `text` for HTML, in an element or in a quoted attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 16);
    for one in text.chars() {
        match one {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(one),
        }
    }
    safe
}

/// JSON that can end no element: such characters stand within its strings only.
fn embedded(json: &str) -> String {
    let mut safe = String::with_capacity(json.len() + json.len() / 64);
    for one in json.chars() {
        match one {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a string cannot fail.
                let _ = write!(safe, "\\u{:04x}", u32::from(one));
            }
            _ => safe.push(one),
        }
    }
    safe
}

/// A source of a content security policy: this text and no other.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

impl Page {
    /// The whole file.
    ///
    /// # Panics
    /// Never: the data are numbers, texts and lists, which have a JSON form.
    #[must_use]
    pub fn html(&self) -> String {
        let data = serde_json::to_string(self).expect("numbers, texts and lists have a JSON form");
        let title = escaped(&self.title());
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
            hash(SCRIPT),
            hash(STYLE)
        );
        let version = env!("CARGO_PKG_VERSION");
        let body = [
            self.header(&title),
            self.headlines(),
            self.films(),
            "<p class=\"error\" id=\"error\" hidden></p>\n<noscript><p class=\"error\">The charts need JavaScript; the figures do not.</p></noscript>\n<div id=\"charts\">\n".to_owned(),
            self.places(),
            "</div>\n<button id=\"reset\" type=\"button\">Whole run</button>\n".to_owned(),
            self.losses(),
            self.absent(),
            self.footer(),
        ]
        .concat();
        format!(
            "{BEGIN}{version}\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\
             <script type=\"application/json\" id=\"data\">{}</script>\n\
             <script>{SCRIPT}</script>\n</body>\n</html>\n",
            embedded(&data)
        )
    }

    fn title(&self) -> String {
        let titles: Vec<&str> = self.runs.iter().map(|run| run.title.as_str()).collect();
        match titles.first() {
            Some(first) if !first.is_empty() && titles.iter().all(|title| title == first) => {
                (*first).to_owned()
            }
            _ if self.runs.len() == 1 => self.names[0].clone(),
            _ => format!("{} runs", self.runs.len()),
        }
    }

    fn header(&self, title: &str) -> String {
        let mut text = format!(
            "<header>\n<h1>{title}</h1>\n<button id=\"theme\" type=\"button\" title=\"Light or dark\" \
             aria-label=\"Light or dark\"></button>\n<ul class=\"runs\">\n"
        );
        for (place, run) in self.runs.iter().enumerate() {
            let swatch = self.swatch_of_run(place);
            let own = if run.title == self.title() { "" } else { &run.title };
            let facts = run.facts.iter().map(|(name, value)| format!("{name} {value}"));
            let facts = facts.map(|fact| fact.trim().to_owned());
            let facts: Vec<_> = std::iter::once(seconds(run.end_s))
                .chain(facts)
                .map(|fact| escaped(&fact))
                .collect();
            let (label, end) = match self.runs.len() {
                1 => (String::new(), ""),
                _ => (
                    format!("<label><input type=\"checkbox\" value=\"{place}\" checked>"),
                    "</label>",
                ),
            };
            let _ = writeln!(
                text,
                "<li title=\"{}\">{label}{swatch}<b>{}</b>{end} <span>{}</span> <small>{}</small></li>",
                escaped(&run.name),
                escaped(&self.names[place]),
                escaped(own),
                facts.join(" · ")
            );
        }
        text + "</ul>\n</header>\n"
    }

    pub(crate) fn swatch_of_run(&self, run: usize) -> String {
        if self.runs.len() > 1 {
            format!("<i class=\"swatch c{}\"></i>", run % 12)
        } else {
            String::new()
        }
    }

    fn swatch_of_group(&self, group: &str) -> String {
        let place = self.labels.iter().position(|label| label == group).unwrap_or_default();
        if self.runs.len() > 1 {
            String::new()
        } else {
            format!("<i class=\"swatch c{}\"></i>", place % 12)
        }
    }

    fn headlines(&self) -> String {
        let several = self.runs.len() > 1;
        let run = if several { "<th scope=\"col\">Run</th>" } else { "" };
        let mut text = format!(
            "<section class=\"headline\">\n<table>\n<thead><tr><th scope=\"col\">Group</th>{run}\
             <th scope=\"col\">Goodput</th><th scope=\"col\">Lost</th><th scope=\"col\">Late, by start-up delay</th>\
             <th scope=\"col\">Delay<small>p50</small></th><th scope=\"col\"><small>p95</small></th>\
             <th scope=\"col\"><small>p99</small></th>\
             <th scope=\"col\">Round trip</th></tr></thead>\n<tbody>\n"
        );
        // What is compared stands together: the same group of all runs.
        let rows = self.labels.iter().flat_map(|label| {
            let of_runs = self.runs.iter().enumerate();
            of_runs.flat_map(move |(place, run)| {
                run.headlines
                    .iter()
                    .filter(move |row| row.group == *label)
                    .map(move |row| (place, row))
            })
        });
        let mut group = None;
        for (place, row) in rows {
            let is_next = group.replace(row.group.as_str()) == Some(row.group.as_str());
            let name = format!(
                "<td class=\"run\">{}{}</td>",
                self.swatch_of_run(place),
                escaped(&self.names[place])
            );
            let _ = writeln!(
                text,
                "<tr data-run=\"{place}\"{}><th scope=\"row\">{}{}<small>{}</small></th>{}{}</tr>",
                if is_next { " class=\"next\"" } else { "" },
                self.swatch_of_group(&row.group),
                escaped(&row.group),
                escaped(&row.detail),
                if several { &name } else { "" },
                figures(row)
            );
        }
        text + "</tbody>\n</table>\n</section>\n"
    }

    /// Where the script draws: charts over time, events, the other charts.
    fn places(&self) -> String {
        let events = "<section class=\"chart\" id=\"events\">\n<h2>Events<span class=\"unit\"></span></h2>\n\
                      <p>Reactions of congestion controllers, and what happened in the network</p>\n\
                      <div class=\"plot\"></div>\n<div class=\"legend\"></div>\n</section>\n";
        let (of_films, of_network): (Vec<_>, Vec<_>) =
            self.charts.iter().partition(|chart| chart.chart.is_of_films());
        let (over_time, others): (Vec<_>, Vec<_>) =
            of_network.into_iter().partition(|chart| chart.chart.is_over_time());
        let place = |charts: Vec<_>| -> String {
            charts.into_iter().map(|chart| self.place_of(chart)).collect()
        };
        let (of_films, over_time, others) = (place(of_films), place(over_time), place(others));
        [of_films.as_str(), &over_time, if self.marks.is_empty() { "" } else { events }, &others]
            .concat()
    }

    fn place_of(&self, chart: &DrawnChart) -> String {
        let class = serde_json::to_value(chart.chart).ok();
        let class = class.as_ref().and_then(|class| class.as_str()).unwrap_or_default();
        // A chart of one run says of which.
        let of = match chart.run {
            Some(run) if self.runs.len() > 1 => format!(
                " of {}{} <small>{}</small>",
                self.swatch_of_run(run),
                escaped(&self.names[run]),
                escaped(&chart.film)
            ),
            Some(_) => format!(" of {}", escaped(&chart.film)),
            None => String::new(),
        };
        format!(
            "<section class=\"chart {class}\" id=\"{}\">\n<h2><span>{}{of}</span><span class=\"unit\"></span></h2>\n<p>{}</p>\n\
             <div class=\"plot\"></div>\n<div class=\"legend\"></div>\n</section>\n",
            chart.id,
            escaped(chart.title),
            escaped(chart.about),
        )
    }

    fn losses(&self) -> String {
        if self.runs.iter().all(|run| run.losses.is_empty()) {
            return String::new();
        }
        let several = self.runs.len() > 1;
        let head = if several { "<th scope=\"col\">Run</th>" } else { "" };
        let mut text = format!(
            "<section class=\"links\">\n<h2>Links</h2>\n<p>Packets lost in the measured time, by cause, and how \
             busy the link was.</p>\n<div class=\"scroll\"><table>\n<thead><tr>{head}<th scope=\"col\">Link</th>\
             <th scope=\"col\">Packets</th><th scope=\"col\">Queue full</th><th scope=\"col\">Dropped early</th>\
             <th scope=\"col\">Lost on the wire</th><th scope=\"col\">Policed</th><th scope=\"col\">Corrupted</th><th scope=\"col\">Busy</th>\
             <th scope=\"col\">Mean queue</th></tr></thead>\n<tbody>\n"
        );
        for (place, run) in self.runs.iter().enumerate() {
            let name = &self.names[place];
            let name = format!("<td>{}{}</td>", self.swatch_of_run(place), escaped(name));
            for link in &run.losses {
                let _ = writeln!(
                    text,
                    "<tr data-run=\"{place}\">{}{}</tr>",
                    if several { &name } else { "" },
                    link_cells(link)
                );
            }
        }
        text + "</tbody>\n</table></div>\n</section>\n"
    }

    /// What runs did not record, each once with the runs that lack it.
    fn absent(&self) -> String {
        let mut all: Vec<(&Absent, Vec<&str>)> = Vec::new();
        for (run, name) in self.runs.iter().zip(&self.names) {
            for absent in &run.absent {
                match all.iter_mut().find(|(known, _)| *known == absent) {
                    Some((_, runs)) => runs.push(name),
                    None => all.push((absent, vec![name])),
                }
            }
        }
        if all.is_empty() {
            return String::new();
        }
        let mut text = "<section class=\"absent\">\n<h2>Not recorded</h2>\n<ul>\n".to_owned();
        for (absent, runs) in all {
            let of = if runs.len() < self.runs.len() {
                let names: Vec<_> = runs.iter().map(|name| escaped(name)).collect();
                format!(" ({})", names.join(", "))
            } else {
                String::new()
            };
            let remedy = match &absent.why {
                Some(why) => escaped(why),
                None => {
                    let lines = absent.lines.iter().map(|line| escaped(line));
                    let lines: Vec<_> = lines.map(|line| format!("<code>{line}</code>")).collect();
                    format!("in the scenario: {}", lines.join(" "))
                }
            };
            let _ = writeln!(
                text,
                "<li>{}{of}. <span>{remedy}</span></li>",
                escaped(&capital(&absent.what))
            );
        }
        text + "</ul>\n</section>\n"
    }

    fn footer(&self) -> String {
        let notes = self.notes.iter().map(|note| format!("<li>{}</li>\n", escaped(&capital(note))));
        let notes: String = notes.collect();
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "<footer>\n<ul>\n{notes}</ul>\n<p>Drag, pinch, or turn the wheel with Ctrl to zoom; double-click \
             resets. Keys on a chart: + − ← → 0. Written by <code>ontempo show</code> {version}.</p>\n</footer>\n"
        )
    }
}

fn figures(row: &Headline) -> String {
    const NONE: &str = "<span class=\"none\">–</span>";
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let share = row.share_of_capacity;
    let share = share.map(|share| format!("<small>{} of capacity</small>", percent(share)));
    let share = share.or_else(|| row.rate_of.map(|of| format!("<small>{of}</small>")));
    let goodput = row.rate_bps.map(|bps| format!("{}{}", rate(bps), share.unwrap_or_default()));
    let places: Vec<usize> = match row.late.len() {
        count if count <= MAX_LATE => (0..count).collect(),
        count => vec![0, count / 2, count - 1],
    };
    let late = places.into_iter().map(|place| {
        let late = &row.late[place];
        let class = if late.share() > MARKED_LATE { " class=\"bad\"" } else { "" };
        format!(
            "<span class=\"late\">{} <b{class}>{}</b></span>",
            seconds(late.startup_s),
            percent(late.share())
        )
    });
    let late: String = late.collect();
    let delay = row.delays.as_ref();
    let cell = |label: &str, value: Option<String>| {
        format!("<td data-label=\"{label}\">{}</td>", or_none(value))
    };
    let p50 = delay.map(|delay| format!("{}<small>{}</small>", seconds(delay.p50_s), delay.of));
    [
        cell("Goodput", goodput),
        cell("Lost", row.loss.map(percent)),
        cell("Late", (!late.is_empty()).then_some(late)),
        cell("Delay p50", p50),
        cell("p95", delay.map(|delay| seconds(delay.p95_s))),
        cell("p99", delay.map(|delay| seconds(delay.p99_s))),
        cell("Round trip", row.rtt_s.map(seconds)),
    ]
    .concat()
}

fn link_cells(link: &LinkLosses) -> String {
    let lost = |packets: u64| match packets {
        0 => "<span class=\"none\">0</span>".to_owned(),
        some => {
            let share = percent(some as f64 / link.arrivals.max(1) as f64);
            format!("{}<small>{share}</small>", count(some))
        }
    };
    format!(
        "<th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1}</td>",
        escaped(&link.link),
        count(link.arrivals),
        lost(link.full),
        lost(link.early),
        lost(link.wire),
        lost(link.policer),
        lost(link.corrupted),
        percent(link.busy),
        link.mean_packets
    )
}

/// `text` with a capital letter.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Run;

    #[test]
    fn text_ends_no_element_and_no_attribute() {
        assert_eq!(escaped("</script><b a=\"'&"), "&lt;/script&gt;&lt;b a=&quot;&#39;&amp;");
        let json = embedded(r#"{"a":"</script><!--&"}"#);
        assert!(!json.contains(['<', '>', '&']), "{json}");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["a"], "</script><!--&");
    }

    #[test]
    fn the_script_ends_no_element_and_a_hash_is_that_of_the_standard() {
        for text in [SCRIPT, STYLE] {
            assert!(!text.to_lowercase().contains("</s"), "it would end early");
        }
        // CSP Level 3, section 6.7.3.3 (example of `alert('Hello, world.');`).
        let expected = "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='";
        assert_eq!(hash("alert('Hello, world.');"), expected);
    }

    #[test]
    fn a_page_is_known_by_its_begin() {
        let page = Page::of(vec![Run::default()]).html();
        assert!(is_page(page.as_bytes()));
        assert!(!is_page(b"<!doctype html>\n<html lang=\"en\">"));
    }
}
