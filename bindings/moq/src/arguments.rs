//! The command line.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Parser, Subcommand};
use url::Url;

/// A stream through a relay for Media over QUIC
#[derive(Debug, Parser)]
#[command(name = "ontempo", version)]
pub(crate) struct Program {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Publish a transport stream (MPEG-TS) at a relay for Media over QUIC
    #[command(after_help = "\
The last part of the URL is the name of the stream, what is before it the path at the relay. A token goes behind it, \
?jwt=TOKEN, which other users of this machine see in ps; better --token-file.

Examples:
  ontempo publish moq://relay.example/anon/film.hang --from udp://:5000
  ontempo receive --listen :4433 --to - | ontempo publish moq://relay.example/anon/film.hang --from -")]
    Publish(Publish),
    /// Get a stream from a relay for Media over QUIC, as a transport stream (MPEG-TS)
    #[command(after_help = "\
Examples:
  ontempo subscribe moq://relay.example/anon/film.hang --to udp://127.0.0.1:5001
  ontempo subscribe moq://relay.example/anon/film.hang --to - | ffplay -")]
    Subscribe(Subscribe),
}

#[derive(Debug, Args)]
pub(crate) struct Publish {
    #[command(flatten)]
    pub(crate) relay: Relay,
    /// The source: udp://:PORT or udp://ADDRESS:PORT, a file, or - for standard input
    #[arg(long, value_name = "SOURCE")]
    pub(crate) from: Place,
    /// How long relays keep a group of pictures that is not the newest: what subscribers can fall behind
    #[arg(long, value_name = "TIME", default_value = "5 s", value_parser = time)]
    pub(crate) max_age: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    #[command(flatten)]
    pub(crate) relay: Relay,
    /// The target: udp://HOST:PORT, a file, or - for standard output
    #[arg(long, value_name = "SINK")]
    pub(crate) to: Place,
    /// How far the output may be behind the newest picture; a group of pictures that would be later is left out
    #[arg(long, value_name = "TIME", default_value = "1 s", value_parser = time)]
    pub(crate) latency: Duration,
    /// Replace the file of --to if it exists
    #[arg(long)]
    pub(crate) overwrite: bool,
}

/// The relay, and how it is trusted.
#[derive(Debug, Args)]
pub(crate) struct Relay {
    /// moq://HOST[:PORT]/PATH/NAME, port 443 if none is given
    #[arg(value_name = "URL", value_parser = UrlParser)]
    pub(crate) url: MoqUrl,
    /// File with the token for the relay (JWT), of mode 600
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// SHA-256 of the relay's certificate; default: the issuers that this machine trusts
    #[arg(long, value_name = "HEX", conflicts_with_all = ["trust", "insecure"])]
    pub(crate) fingerprint: Option<String>,
    /// Accept relays whose certificate is signed by a CA certificate in this file (PEM)
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) trust: Option<PathBuf>,
    /// Do not verify the relay: only for tests
    #[arg(long)]
    pub(crate) insecure: bool,
    /// How long a relay that does not answer, or a stream that is not there, is waited for
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = time)]
    pub(crate) give_up: Duration,
    /// Print events, and figures each second, as JSON documents, one a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The source or target of media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Datagrams; the host may be missing.
    Udp(String),
    /// Standard input or output.
    Pipe,
    /// A file.
    File(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(address) = text.strip_prefix("udp://") {
            let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            return match port {
                Some(_) => Ok(Self::Udp(address.to_owned())),
                None => Err("a port is missing: write udp://127.0.0.1:5000".to_owned()),
            };
        }
        match text {
            "-" => Ok(Self::Pipe),
            "" => Err("write udp://HOST:PORT, - or a file".to_owned()),
            _ => match text.split_once("://") {
                Some(("file", path)) => Ok(Self::File(path.into())),
                Some((scheme, _)) => {
                    Err(format!("`{scheme}` is not known here: write udp://HOST:PORT, - or a file"))
                }
                None => Ok(Self::File(text.into())),
            },
        }
    }
}

/// Where a stream is: the relay's address and path, and the name of the broadcast there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MoqUrl {
    /// `https://HOST:PORT/PATH`, with the query.
    pub(crate) relay: Url,
    /// The last part of the path.
    pub(crate) name: String,
}

impl FromStr for MoqUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A query may hold a token: the text is not repeated.
        let right = "write moq://HOST[:PORT]/PATH/NAME, as in moq://relay.example/anon/film.hang";
        let rest = text.strip_prefix("moq://").ok_or(right)?;
        let url: Url =
            format!("https://{rest}").parse().map_err(|error| format!("{error}: {right}"))?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(format!("no user and no # belong there: {right}"));
        }
        let (path, name) = url.path().rsplit_once('/').ok_or(right)?;
        if name.is_empty() {
            return Err(format!("the name of the stream is missing: {right}"));
        }
        let (path, name) = (path.to_owned(), name.to_owned());
        let mut relay = url;
        relay.set_path(&path);
        Ok(Self { relay, name })
    }
}

/// Reads a [`MoqUrl`]; an error does not repeat the text, which may hold a token.
#[derive(Clone, Copy)]
struct UrlParser;

impl TypedValueParser for UrlParser {
    type Value = MoqUrl;

    fn parse_ref(
        &self,
        _: &clap::Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> Result<MoqUrl, clap::Error> {
        let read = value.to_str().ok_or_else(|| "it is no text".to_owned()).and_then(str::parse);
        read.map_err(|why| clap::Error::raw(ErrorKind::ValueValidation, format!("URL: {why}\n")))
    }
}

/// A time such as `500 ms` or `2 s`.
fn time(text: &str) -> Result<Duration, String> {
    let right = "write a time from 1 ms to 1 h, such as 500 ms or 2 s";
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(right)?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(right.to_owned()),
    };
    let seconds = number.parse::<f64>().map_err(|_| right)? * unit;
    match (1e-3..=3_600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(right.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_the_relay_its_path_and_the_name_of_the_stream() {
        let read = |text: &str| text.parse::<MoqUrl>();
        let of = |text: &str| read(text).map(|url| (url.relay.to_string(), url.name)).expect(text);
        let expected = |relay: &str, name: &str| (relay.to_owned(), name.to_owned());
        assert_eq!(of("moq://relay.example/film"), expected("https://relay.example/", "film"));
        assert_eq!(
            of("moq://[::1]:4443/a/b/film.hang?jwt=x"),
            expected("https://[::1]:4443/a/b?jwt=x", "film.hang")
        );
        for wrong in [
            "https://relay.example/film",
            "moq://relay.example/",
            "moq://relay.example",
            "moq:///film",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let told = read("moq://relay.example/?jwt=secret").expect_err("no name");
        assert!(told.contains("name") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn an_error_of_the_url_does_not_show_the_token_in_it() {
        let words = ["ontempo", "subscribe", "moq://relay.example/?jwt=secret", "--to", "-"];
        let told = Program::try_parse_from(words).expect_err("no name").to_string();
        assert!(told.contains("name of the stream") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn times_have_units_and_bounds() {
        assert_eq!(time("500 ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1_500)));
        for wrong in ["5", "0 s", "2 h", "-1 s", "s", "1 d", "1e9 s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_place_is_an_address_a_pipe_or_a_file() {
        assert_eq!("-".parse(), Ok(Place::Pipe));
        assert_eq!("udp://:5000".parse(), Ok(Place::Udp(":5000".to_owned())));
        assert_eq!("film.ts".parse(), Ok(Place::File("film.ts".into())));
        for wrong in ["", "udp://127.0.0.1", "rtp://:5004", "srt://x:1"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
