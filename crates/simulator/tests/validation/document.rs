//! The tables of `docs/validation.md`.

use std::fmt::Write;
use std::path::PathBuf;

use crate::compare::{Estimate, Finding, Row, Rule};
use crate::known::Cause;

const SUMMARY: &str = "<!-- summary: generated -->\n";
const SUMMARY_END: &str = "<!-- end of summary -->\n";
const UNEXPLAINED: &str = "<!-- unexplained: generated -->\n";
const UNEXPLAINED_END: &str = "<!-- end of unexplained -->\n";
const TABLES: &str = "<!-- tables: generated -->\n";
const WRITE: &str = "ONTEMPO_WRITE_VALIDATION";

const SECTIONS: [(&str, &str); 9] = [
    ("single.tcl", "One flow"),
    ("steady.tcl", "One flow past its start"),
    ("switched.tcl", "One flow, with a switch of ns-2 set"),
    ("two.tcl", "Two flows"),
    ("two_switched.tcl", "Two flows whose slow start ends early"),
    ("many.tcl", "Many flows"),
    ("many_switched.tcl", "Many flows whose slow start ends early"),
    ("spacing.tcl", "Evenly spaced packets"),
    ("spacing_apart.tcl", "Evenly spaced packets beside TCP flows of different round trips"),
];

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/validation.md")
}

/// The committed document.
pub(crate) fn committed() -> String {
    std::fs::read_to_string(path()).expect("docs/validation.md can be read")
}

/// Compares the committed tables with these rows, or writes them if the environment says so.
pub(crate) fn check_or_write(rows: &[Row]) {
    let document = committed();
    let (title, rest) = document.split_once(SUMMARY).expect("a place for the summary");
    let (_summary, rest) = rest.split_once(SUMMARY_END).expect("an end of the summary");
    let (prose, rest) = rest.split_once(UNEXPLAINED).expect("a place for the unexplained");
    let (_unexplained, rest) = rest.split_once(UNEXPLAINED_END).expect("their end");
    let (after, _tables) = rest.split_once(TABLES).expect("a place for the tables");
    let new = [
        &format!("{title}{SUMMARY}{}{SUMMARY_END}", summary(rows)),
        &format!("{prose}{UNEXPLAINED}{}{UNEXPLAINED_END}", unexplained(rows)),
        &format!("{after}{TABLES}{}", tables(rows)),
    ]
    .map(String::as_str)
    .concat();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path(), new).expect("it can be written");
        return;
    }
    let different = document.lines().zip(new.lines()).find(|(old, new)| old != new);
    assert!(
        document == new,
        "docs/validation.md is not current ({WRITE}=1 writes it): {different:?}"
    );
}

fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    for (script, title) in SECTIONS {
        let of_script = rows.iter().filter(|row| row.scenario.starts_with(script));
        let _ = write!(text, "\n## {title}\n");
        let mut scenario = "";
        for row in of_script {
            if row.scenario != scenario {
                scenario = &row.scenario;
                let _ = write!(text, "\n`{scenario}`{}\n\n{HEAD}", runs(row));
            }
            text += &line(row);
        }
    }
    text
}

const HEAD: &str = "| quantity | ns-2 | ontempo | difference | rule | verdict |\n\
                    | --- | ---: | ---: | ---: | --- | --- |\n";

fn runs(row: &Row) -> String {
    if row.runs > 1 { format!(", {} runs", row.runs) } else { String::new() }
}

/// The counts, and the rows that are furthest from ns-2.
fn summary(rows: &[Row]) -> String {
    let count = |verdict: &str| rows.iter().filter(|row| verdict_of(row) == verdict).count();
    // By ratio: ten times as much is as far away as a tenth.
    let furthest = |row: &&Row| (row.ontempo.mean / row.ns2.mean).ln().abs();
    let worst = |finding: Finding| {
        rows.iter()
            .filter(|row| row.finding() == finding && row.ns2.mean > 0.0 && row.ontempo.mean > 0.0)
            .max_by(|a, b| furthest(a).total_cmp(&furthest(b)))
            .map_or_else(|| "none".to_owned(), describe)
    };
    format!(
        "\n{} rows: {} agree, {} are known differences with a cause, {} differences have no cause, \
         {} differ and are not known, {} cannot be told.\n\n\
         Furthest of those that differ: {}\n\n\
         Furthest of those that agree: {}\n\n\
         Furthest of those that cannot be told: {}\n\n",
        rows.len(),
        count("agrees"),
        count("known"),
        count("unexplained"),
        count("differs"),
        count("cannot be told"),
        worst(Finding::Differs),
        worst(Finding::Agrees),
        worst(Finding::Undecided),
    )
}

/// The differences without a cause.
fn unexplained(rows: &[Row]) -> String {
    let suspicion = |row: &&Row| match row.known.map(|known| known.cause) {
        Some(Cause::Unexplained(unexplained)) => Some(unexplained.suspicion.as_str()),
        _ => None,
    };
    let mut lines = rows.iter().filter_map(|row| Some((row, suspicion(&row)?))).peekable();
    if lines.peek().is_none() {
        return "\nThere are none.\n\n".to_owned();
    }
    let mut text = "\n| scenario | quantity | ns-2 | ontempo | difference | suspected |\n\
                    | --- | --- | ---: | ---: | ---: | --- |\n"
        .to_owned();
    for (row, suspicion) in lines {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {suspicion} |",
            row.scenario,
            name(row),
            number(row, row.ns2),
            number(row, row.ontempo),
            difference(row),
        );
    }
    text + "\n"
}

fn describe(row: &Row) -> String {
    format!(
        "`{}`, {}: {} in ontempo, {} in ns-2 ({}; {}).",
        row.scenario,
        name(row),
        number(row, row.ontempo),
        number(row, row.ns2),
        difference(row),
        verdict(row),
    )
}

fn line(row: &Row) -> String {
    format!(
        "| {} | {} | {} | {} | {} | {} |\n",
        name(row),
        number(row, row.ns2),
        number(row, row.ontempo),
        difference(row),
        rule(row),
        verdict(row),
    )
}

fn name(row: &Row) -> String {
    let words = [
        ("goodput_mbps", "goodput (Mbit/s)"),
        ("udp_received_mbps", "UDP received, per sender (Mbit/s)"),
        ("tcp_mbps", "TCP goodput, per flow (Mbit/s)"),
        ("mean_packets", "mean (packets)"),
        ("cwnd_cuts", "window reductions"),
        ("jain", "Jain's index"),
    ];
    let mut name = row.quantity.to_owned();
    for (from, to) in words {
        name = name.replace(from, to);
    }
    name.trim_start_matches("flow ").to_owned()
}

fn number(row: &Row, estimate: Estimate) -> String {
    let digits = match row.quantity.rsplit([' ', '_']).next() {
        Some("mbps" | "jain") => 4,
        Some("packets") => 3,
        _ if row.runs > 1 => 1,
        _ => 0,
    };
    let half = estimate.half.map(|half| format!(" ± {half:.digits$}")).unwrap_or_default();
    let mean = format!("{:.digits$}", estimate.mean);
    // No quantity is negative except the zero of an empty sum and ns-2's count from -1.
    format!("{}{half}", if estimate.mean == 0.0 { mean.trim_start_matches('-') } else { &mean })
}

fn difference(row: &Row) -> String {
    match row.difference() {
        Some(difference) => {
            let percent = format!("{:+.1} %", difference * 100.0);
            if percent == "-0.0 %" { "+0.0 %".to_owned() } else { percent }
        }
        None => "from zero".to_owned(),
    }
}

fn rule(row: &Row) -> String {
    match row.rule {
        Rule::Fraction(fraction) => format!("{:.0} %", fraction * 100.0),
        Rule::Means => "95 % interval".to_owned(),
    }
}

fn verdict_of(row: &Row) -> &'static str {
    match (row.finding(), row.known.map(|known| known.cause)) {
        (Finding::Agrees, _) => "agrees",
        (Finding::Undecided, _) => "cannot be told",
        (Finding::Differs, Some(Cause::Explained(_))) => "known",
        (Finding::Differs, Some(Cause::Unexplained(_))) => "unexplained",
        (Finding::Differs, None) => "differs",
    }
}

fn verdict(row: &Row) -> String {
    let verdict = verdict_of(row);
    match row.known {
        Some(known) if row.finding() == Finding::Differs => {
            let anchor = known.name().to_lowercase().replace(' ', "-").replace([',', '\''], "");
            format!("[{verdict}](#{anchor})")
        }
        None if row.finding() == Finding::Differs => format!("**{verdict}**"),
        _ => verdict.to_owned(),
    }
}
