//! Names of streams, for a relay that carries several.
//!
//! A name follows the label of a flow after `; `: that of the flow of units ([`Label`]) names what
//! is sent, that of the flow of reports ([`REPORTS`]) what a viewer asks for. Without a name, labels
//! are what they are without a relay.
//!
//! [`Label`]: crate::message::Label
//! [`REPORTS`]: crate::message::REPORTS

use std::fmt;
use std::str::FromStr;

/// The longest name, bytes.
const MAX_NAME: usize = 64;

/// What separates a label from a name.
const SEPARATOR: &str = "; ";

/// The name of a stream: 1 to 64 letters, digits, `.`, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName(String);

/// Why a text is no name of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamNameError;

impl fmt::Display for StreamNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a stream has 1 to {MAX_NAME} letters, digits, dots, - and _")
    }
}

impl std::error::Error for StreamNameError {}

impl FromStr for StreamName {
    type Err = StreamNameError;

    fn from_str(text: &str) -> Result<Self, StreamNameError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_name = (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_plain);
        if is_name { Ok(Self(text.to_owned())) } else { Err(StreamNameError) }
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A label with the name, if there is one.
pub fn with_name(label: impl fmt::Display, name: Option<&StreamName>) -> String {
    match name {
        Some(name) => format!("{label}{SEPARATOR}{name}"),
        None => label.to_string(),
    }
}

/// A label without its name, and the name.
///
/// # Errors
/// What follows the separator is no name.
pub fn split_name(label: &str) -> Result<(&str, Option<StreamName>), StreamNameError> {
    match label.split_once(SEPARATOR) {
        Some((label, name)) => Ok((label, Some(name.parse()?))),
        None => Ok((label, None)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_named_label_is_split_into_what_it_was_made_of(
            label in "[a-z0-9 ]{0,40}",
            name in proptest::option::of("[A-Za-z0-9._-]{1,64}"),
        ) {
            let name = name.map(|name| name.parse::<StreamName>().expect("a name"));
            let text = with_name(&label, name.as_ref());
            prop_assert_eq!(split_name(&text), Ok((label.as_str(), name)));
        }

        #[test]
        fn any_label_is_split_or_refused(label in ".{0,80}") {
            if let Ok((rest, Some(name))) = split_name(&label) {
                prop_assert_eq!(with_name(rest, Some(&name)), label);
            }
        }
    }

    #[test]
    fn a_name_has_no_character_that_a_label_or_a_terminal_would_take_for_something_else() {
        for wrong in ["", "a b", "a;b", "\u{1b}[2J", &"a".repeat(65)] {
            assert_eq!(wrong.parse::<StreamName>(), Err(StreamNameError), "{wrong:?}");
        }
    }
}
