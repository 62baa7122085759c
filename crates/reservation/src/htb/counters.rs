//! What a class has done, as `tc -s` shows it.

use std::collections::BTreeMap;

/// Packets of a class since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub sent: u64,
    /// Of them, those sent beyond the class's own rate, as best effort.
    pub borrowed: u64,
    /// Packets dropped because the class's queue was full.
    pub dropped: u64,
}

/// Reads `tc -s class show dev D`: each class, by its name there, and what it has done.
pub fn read_counters(shown: &str) -> BTreeMap<String, Counters> {
    let mut found = BTreeMap::new();
    let mut current: Option<(String, Counters)> = None;
    for line in shown.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["class", "htb", name, ..] = words[..] {
            found.extend(current.replace((name.to_owned(), Counters::default())));
        }
        let Some((_, counters)) = &mut current else { continue };
        match words[..] {
            // Sent 1000 bytes 1 pkt (dropped 0, overlimits 0 requeues 0)
            ["Sent", _, "bytes", sent, "pkt", "(dropped", dropped, ..] => {
                counters.sent = number(sent);
                counters.dropped = number(dropped.trim_end_matches(','));
            }
            ["lended:", _, "borrowed:", borrowed, ..] => counters.borrowed = number(borrowed),
            _ => {}
        }
    }
    found.extend(current);
    found
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_is_read_with_what_it_did() {
        let shown = "\
class htb 1:1001 parent 1:fff0 prio 7 rate 500Kbit ceil 1500Kbit burst 4000b cburst 1599b 
 Sent 240000 bytes 240 pkt (dropped 3, overlimits 17 requeues 0) 
 backlog 0b 0p requeues 0
 lended: 200 borrowed: 40 giants: 0
 tokens: 927500 ctokens: 125000

class htb 1:fff0 root rate 1500Kbit ceil 1500Kbit burst 3000b cburst 3000b 
 Sent 480000 bytes 480 pkt (dropped 0, overlimits 99 requeues 0) 
 backlog 0b 0p requeues 0
 lended: 40 borrowed: 0 giants: 0
 tokens: 125000 ctokens: 125000
";
        let counters = read_counters(shown);
        assert_eq!(counters["1:1001"], Counters { sent: 240, borrowed: 40, dropped: 3 });
        assert_eq!(counters["1:fff0"].sent, 480);
        assert_eq!(counters.len(), 2);
    }

    #[test]
    fn what_is_not_tcs_is_passed_over() {
        assert_eq!(read_counters("Sent 1 bytes\nclass htb\n lended:\n"), BTreeMap::new());
    }
}
