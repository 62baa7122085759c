//! Films, and the transports that carry them alone.

use ontempo_foundation::Duration;
use ontempo_mechanisms::congestion::CongestionName;

use super::Findings;
use crate::custom::CustomNames;
use crate::film;
use crate::model::{
    Application, FlowGroup, MediaSending, OntempoSpec, RistSpec, Scenario, SrtSpec, Transport,
};
use crate::path::FieldPath;

/// The longest latency of a player: live media is not watched an hour late.
const MAX_LATENCY: Duration = Duration::from_secs(3_600);

/// Latencies for which a film is judged: each takes time at the end of a run.
const MAX_LATENCIES: usize = 64;

/// SRT's handshake has 16 bits of milliseconds for it (draft-sharabayko-srt-01, section 3.2.1.1).
const MAX_SRT_LATENCY: Duration = Duration::from_millis(65_535);

/// Live media waits no longer.
const MAX_RIST_BUFFER: Duration = Duration::from_secs(60);

/// The longest latency that `ontempo receive` accepts.
const MAX_ONTEMPO_LATENCY: Duration = Duration::from_secs(60);

/// Bits of seven transport packets.
const DATAGRAM_BITS: f64 = 7.0 * 188.0 * 8.0;

pub(super) fn application(application: &Application, path: &FieldPath, findings: &mut Findings) {
    let Application::Media {
        file,
        frames,
        frames_text,
        generate,
        sending,
        mux_rate,
        stuffing,
        latency,
    } = application
    else {
        return;
    };
    let given = [file.is_some(), frames.is_some(), frames_text.is_some(), generate.is_some()];
    if given.iter().filter(|given| **given).count() != 1 {
        let what = "give one of `file`, `frames`, `frames-text` and `generate`; write generate = { rate = \
                    \"4 Mbit/s\" }";
        return findings.add(path, what);
    }
    let many = generate.as_ref().map_or(0.0, film::generated_frames);
    if many > film::MAX_GENERATED {
        let what =
            format!("some {many:.0} frames are too many; it begins anew after at most 1000000");
        return findings.add(&path.key("generate").key("duration"), what);
    }
    let plan = match film::plan(application) {
        Some(Ok(plan)) => plan,
        Some(Err((field, what))) => return findings.add(&path.key(field), what),
        // What is wrong with a file is reported with its name.
        None => return,
    };
    let is_paced = *sending == MediaSending::Paced;
    let what = "only a paced film has a rate of its own; write sending = \"paced\", or remove it";
    findings.require(is_paced || mux_rate.is_none(), &path.key("mux-rate"), what);
    findings.require(is_paced || !stuffing, &path.key("stuffing"), what);
    if let Some(rate) = mux_rate.filter(|rate| *rate < plan.needed) {
        let what =
            format!("{rate} is too little: the film's transport packets need {}", plan.needed);
        findings.add(&path.key("mux-rate"), what);
    }
    let is_some = (1..=MAX_LATENCIES).contains(&latency.len());
    let what = "give 1 to 64 latencies, such as \"400 ms\"";
    findings.require(is_some, &path.key("latency"), what);
    for (place, latency) in latency.iter().enumerate() {
        let is_possible = (Duration::from_nanos(1)..=MAX_LATENCY).contains(latency);
        let what = format!("{latency} is no latency of a player; 1 ns to {MAX_LATENCY} are");
        findings.require(is_possible, &path.key("latency").index(place), &what);
    }
}

/// All films of a scenario together: each group has its own.
pub(super) fn together(scenario: &Scenario, path: &FieldPath, findings: &mut Findings) {
    let mut bytes = 0u64;
    for (name, group) in &scenario.flows {
        let Application::Media { generate, .. } = &group.application else { continue };
        // What is wrong with one is reported already.
        if generate.as_ref().map_or(0.0, film::generated_frames) > film::MAX_GENERATED {
            continue;
        }
        let Some(Ok(plan)) = film::plan(&group.application) else { continue };
        let own = plan.stream_bytes();
        bytes = bytes.saturating_add(own);
        if own > film::MAX_STREAM_BYTES {
            let what = "its transport stream would have more than 512 MiB; a shorter film, or a lower \
                        rate, is needed";
            return findings.add(&path.key(name).key("application"), what);
        }
        if bytes > film::MAX_STREAM_BYTES {
            let what = "the transport streams of all films together would have more than 512 MiB; shorter \
                        films, or fewer groups, are needed";
            return findings.add(path, what);
        }
        if let Transport::Adu(spec) = &group.transport
            && spec.interval.as_secs_f64() * plan.offered().as_bits_per_sec() as f64 > DATAGRAM_BITS
        {
            let what = format!(
                "an ADU of 1316 bytes every {} is less than the film's {}; write interval = \"0 s\"",
                spec.interval,
                plan.offered()
            );
            findings.add(&path.key(name).key("transport").key("interval"), what);
        }
    }
}

/// Whether application and transport fit.
pub(super) fn carried(group: &FlowGroup, path: &FieldPath, findings: &mut Findings) {
    let is_media = matches!(group.application, Application::Media { .. });
    let path = path.key("transport").key("kind");
    match group.transport {
        Transport::Ontempo(_) | Transport::Srt(_) | Transport::Rist(_) if !is_media => {
            let what = "it carries films alone; write application = { kind = \"media\", … }, or \
                        transport = { kind = \"tcp\" }";
            findings.add(&path, what);
        }
        Transport::Spaced { .. } if is_media => {
            let what = "films are carried by `tcp`, `udp`, `adu`, `ontempo`, `srt` and `rist`";
            findings.add(&path, what);
        }
        _ => {}
    }
}

pub(super) fn srt(spec: &SrtSpec, path: &FieldPath, findings: &mut Findings) {
    waits(spec.latency, MAX_SRT_LATENCY, &path.key("latency"), findings);
    let what = "a rate of at least 1 kbit/s is needed";
    let is_possible = spec.max_bandwidth.is_none_or(|rate| rate.as_bits_per_sec() >= 1_000);
    findings.require(is_possible, &path.key("max-bandwidth"), what);
}

pub(super) fn rist(spec: &RistSpec, path: &FieldPath, findings: &mut Findings) {
    waits(spec.buffer, MAX_RIST_BUFFER, &path.key("buffer"), findings);
}

fn waits(time: Duration, most: Duration, path: &FieldPath, findings: &mut Findings) {
    let is_possible = (Duration::from_millis(1)..=most).contains(&time);
    findings.require(is_possible, path, &format!("{time} is not possible; 1 ms to {most} are"));
}

pub(super) fn ontempo(
    spec: &OntempoSpec,
    controllers: &CustomNames,
    path: &FieldPath,
    findings: &mut Findings,
) {
    if let Some(latency) = spec.latency.filter(|latency| *latency > MAX_ONTEMPO_LATENCY) {
        let what = format!("{latency} is more than {MAX_ONTEMPO_LATENCY}");
        findings.add(&path.key("latency"), what);
    }
    if spec.grace > MAX_ONTEMPO_LATENCY {
        let what = format!("{} is more than {MAX_ONTEMPO_LATENCY}", spec.grace);
        findings.add(&path.key("grace"), what);
    }
    if controllers.contains(&spec.congestion) {
        return;
    }
    if let Err(error) = spec.congestion.parse::<CongestionName>() {
        findings.add(&path.key("congestion"), error.to_string());
    }
    if let Some(Err(error)) = spec.known_congestion() {
        let field = path.key("congestion-parameters").key(&error.parameter);
        findings.add(&field, error.what);
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;

    /// What is wrong with a film over a transport.
    fn wrong(application: &str, transport: &str) -> String {
        let text = format!(
            r#"
            duration = "10 s"
            [topology]
            kind = "dumbbell"
            bottleneck = {{ rate = "10 Mbit/s", delay = "10 ms" }}
            access = {{ rate = "10 Mbit/s", delay = "1 ms" }}
            [flows.film]
            application = {{ kind = "media", {application} }}
            transport = {{ {transport} }}
            "#
        );
        parse(&text, "film.toml").err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn a_film_that_cannot_be_is_refused_with_its_field_and_what_would_be_right() {
        let udp = r#"kind = "udp""#;
        assert_eq!(wrong("generate = {}", udp), "");
        for (application, field, what) in [
            ("", "application", "give one of `file`"),
            ("generate = {}, frames = \"x.csv\"", "frames", "a text cannot name files"),
            ("frames-text = \"time_s\"", "frames-text", "columns"),
            ("generate = { rate = \"1 bit/s\" }", "generate", "at least"),
            ("generate = { picture-rate = nan }", "picture-rate", ""),
            ("generate = { duration = \"9999999 s\" }", "duration", "too many"),
            (
                "generate = { rate = \"100 Mbit/s\", duration = \"100 s\", variability = 0.0 }",
                "application",
                "512 MiB",
            ),
            ("generate = {}, mux-rate = \"5 Mbit/s\"", "mux-rate", "only a paced film"),
            ("generate = {}, sending = \"paced\", mux-rate = \"1 Mbit/s\"", "mux-rate", "need"),
            (
                "generate = {}, sending = \"paced\", mux-rate = \"1000 Gbit/s\", stuffing = true",
                "application",
                "512 MiB",
            ),
            ("generate = {}, latency = []", "latency", "1 to 64"),
            ("generate = {}, latency = [\"0 s\"]", "latency[0]", "no latency of a player"),
        ] {
            let told = wrong(application, udp);
            assert!(told.contains(field) && told.contains(what), "{application}: {told:?}");
        }
        for (transport, field) in [
            (r#"kind = "srt", latency = "0 s""#, "transport.latency"),
            (r#"kind = "srt", max-bandwidth = "1 bit/s""#, "max-bandwidth"),
            (r#"kind = "rist", buffer = "2 h""#, "transport.buffer"),
            (r#"kind = "ontempo", latency = "2 h""#, "transport.latency"),
            (r#"kind = "ontempo", congestion = "fast""#, "congestion"),
            (
                r#"kind = "ontempo", congestion-parameters = { t-min = "fast" }"#,
                "transport.congestion-parameters.t-min: ",
            ),
            (
                r#"kind = "ontempo", congestion-parameters = { t-min = { of = 1 } }"#,
                "congestion-parameters.t-min: a parameter is a text, a finite number",
            ),
            (r#"kind = "adu""#, "transport.interval"),
            (r#"kind = "spaced", spacing = "1 ms""#, "transport.kind"),
        ] {
            let told = wrong("generate = {}", transport);
            assert!(told.contains(field), "{transport}: {told:?}");
        }
    }

    #[test]
    fn films_of_many_groups_have_one_bound() {
        let group = |name| {
            format!(
                "[flows.{name}]\napplication = {{ kind = \"media\", generate = {{ duration = \"300 s\" }} }}\n\
                 transport = {{ kind = \"udp\" }}\n"
            )
        };
        let groups: String = ["a", "b", "c", "d"].map(group).concat();
        let text = format!(
            "duration = \"10 s\"\n[topology]\nkind = \"dumbbell\"\n\
             bottleneck = {{ rate = \"10 Mbit/s\", delay = \"10 ms\" }}\n\
             access = {{ rate = \"10 Mbit/s\", delay = \"1 ms\" }}\n{groups}"
        );
        let error = parse(&text, "films.toml").expect_err("600 MB of films").to_string();
        assert!(error.contains("all films together"), "{error}");
    }
}
