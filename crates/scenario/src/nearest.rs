//! The known name that a misspelt one was meant to be.

/// The name of `known` that is nearest to `name`, if it is near enough to be meant.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const MAX_NAME_LEN: usize = 40;
    if name.chars().count() > MAX_NAME_LEN {
        return None;
    }
    let letters = name.chars().count();
    let most = (letters / 3).max(1).min(letters.saturating_sub(1));
    let distances = known.into_iter().map(|other| (distance(name, other), other));
    distances.filter(|(distance, _)| *distance <= most).min().map(|(_, other)| other)
}

/// Levenshtein's distance, case and `_` for `-` not counted, a swap of neighbours as one step.
fn distance(a: &str, b: &str) -> usize {
    let letters = |text: &str| -> Vec<char> {
        text.to_lowercase().chars().map(|c| if c == '_' { '-' } else { c }).collect()
    };
    let (a, b) = (letters(a), letters(b));
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// The names in a row: `` `a`, `b`, `c` ``; the first twenty where there are many.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MAX_NAMES: usize = 20;
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count > MAX_NAMES => {
            format!("{} and {} more", names[..MAX_NAMES].join(", "), count - MAX_NAMES)
        }
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_recognised() {
        let known = ["queue", "rate", "receiver-access"];
        assert_eq!(nearest("qeue", known), Some("queue"));
        assert_eq!(nearest("quuee", known), Some("queue"));
        assert_eq!(nearest("Rate", known), Some("rate"));
        assert_eq!(nearest("receiver_access", known), Some("receiver-access"));
    }

    #[test]
    fn another_word_is_not_taken_for_a_slip() {
        assert_eq!(nearest("colour", ["queue", "rate"]), None);
        assert_eq!(nearest("z", ["a", "b"]), None);
        assert_eq!(nearest(&"x".repeat(100_000), ["queue"]), None);
    }
}
