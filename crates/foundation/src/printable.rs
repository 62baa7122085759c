//! Text of others, made fit for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal, or what shows text, obeys this character instead of showing it: C0, DEL and
/// C1 (ECMA-48), line and paragraph separators, and what changes the direction of writing (UAX #9).
fn is_obeyed(one: char) -> bool {
    one.is_control()
        || matches!(one, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(one, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` on one line, and without a character that a terminal would obey: each is written as
/// `\u` and four hexadecimal digits, as in JSON. For a word or a sentence of another program, user
/// or host.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

/// The same for text of several lines: line feeds and tabs stay. JSON stays JSON of the same
/// meaning, because such characters are only within its strings.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |one| is_obeyed(one) && !matches!(one, '\n' | '\t'))
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for one in text.chars() {
        if is_escaped(one) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(one));
        } else {
            shown.push(one);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(printable("\u{1b}]0;title\u{7}"), r"\u001b]0;title\u0007");
        assert_eq!(printable("a\nb\tc\u{7f}\u{9b}2J"), r"a\u000ab\u0009c\u007f\u009b2J");
        assert_eq!(printable("\u{202e}txt.exe\u{2069}"), r"\u202etxt.exe\u2069");
        assert_eq!(printable_lines("a\n\tb\r\u{1b}[H"), "a\n\tb\\u000d\\u001b[H");
    }

    #[test]
    fn what_is_harmless_is_not_copied() {
        for text in ["", "film", "café \\ 映画 🎬 עברית"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
        }
    }

    proptest! {
        #[test]
        fn nothing_is_left_to_obey(text in any::<String>()) {
            prop_assert!(!printable(&text).contains(is_obeyed));
            prop_assert!(!printable_lines(&text).replace(['\n', '\t'], "").contains(is_obeyed));
        }
    }
}
