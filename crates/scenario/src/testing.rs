//! Scenarios for the tests of this crate.

use crate::model::Scenario;

/// A dumbbell whose lines the tests count on.
pub(crate) const VIDEO: &str = r#"title = "25 video flows"
duration = "20 s"

[topology]
kind = "dumbbell"

[topology.bottleneck]
rate = "25 Mbit/s"
delay = "30 ms"
queue = { kind = "drop-tail", limit = "150 packets" }

[topology.access]
rate = "100 Mbit/s"
delay = "5 ms"

[flows.video]
count = 25
application = { kind = "cbr", rate = "300 kbit/s" }
transport = { kind = "tcp", congestion = "pert" }
start = { low = "0 s", high = "1 s" }
"#;

/// Two ways from `a` to `d`, and a link that leads to `e` only.
pub(crate) const GRAPH: &str = r#"duration = "20 s"
[topology]
kind = "graph"
links = [
    { from = "a", to = "b", rate = "10 Mbit/s", delay = "5 ms" },
    { from = "a", to = "c", rate = "10 Mbit/s", delay = "5 ms" },
    { from = "b", to = "d", rate = "10 Mbit/s", delay = "5 ms", mtu = "1500 bytes" },
    { from = "c", to = "d", rate = "10 Mbit/s", delay = "5 ms" },
    { from = "d", to = "e", rate = "10 Mbit/s", delay = "5 ms", duplex = false },
]
[flows.long]
from = "a"
to = "d"
application = { kind = "ftp" }
transport = { kind = "tcp" }
"#;

/// The scenario that `text` holds.
pub(crate) fn scenario(text: &str) -> Scenario {
    crate::parse(text, "s.toml").unwrap()
}

/// Why `text` with `old` replaced by `new` is refused.
pub(crate) fn refused(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "{old} is not in the scenario");
    crate::parse(&text.replacen(old, new, 1), "s.toml").unwrap_err().to_string()
}
