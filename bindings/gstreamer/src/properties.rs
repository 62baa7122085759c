//! Properties that both elements have, in the same words.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gstreamer::glib;
use gstreamer::prelude::*;

use crate::access::Access;

/// `uri`, `fingerprint`, `token` and `token-file`; `uri` with what it names.
pub(crate) fn access(uri: &'static str) -> Vec<glib::ParamSpec> {
    vec![
        text("uri", "URI", uri),
        text(
            "fingerprint",
            "Fingerprint",
            "The fingerprint of the other side's certificate, 64 hexadecimal digits, if it is not in the URI",
        ),
        text(
            "token",
            "Token",
            "The secret that admits a sender, if it is not in the URI; without any, $ONTEMPO_TOKEN",
        ),
        text("token-file", "Token file", "A file with the token, which others cannot read"),
    ]
}

/// What an element has; a thread that panicked has left it whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Access {
    /// Sets `uri`, if it is one.
    pub(crate) fn set_uri(&mut self, uri: &str) -> Result<(), glib::Error> {
        let access = Self { uri: Some(uri.to_owned()), ..Self::default() };
        if let Err(sentence) = access.address() {
            return Err(glib::Error::new(gstreamer::URIError::BadUri, &sentence));
        }
        self.uri = access.uri;
        Ok(())
    }

    /// Sets one of the properties; false if it is another.
    pub(crate) fn set(&mut self, name: &str, value: &glib::Value) -> bool {
        let field = match name {
            "uri" => &mut self.uri,
            "fingerprint" => &mut self.fingerprint,
            "token" => &mut self.token,
            "token-file" => &mut self.token_file,
            _ => return false,
        };
        *field = value.get().ok().flatten();
        true
    }

    /// The value of one of the properties.
    pub(crate) fn get(&self, name: &str) -> Option<glib::Value> {
        match name {
            "uri" => Some(self.uri.to_value()),
            "fingerprint" => Some(self.fingerprint.to_value()),
            "token" => Some(self.token.to_value()),
            "token-file" => Some(self.token_file.to_value()),
            _ => None,
        }
    }
}

/// A text, not set; it can be changed while the element is stopped.
pub(crate) fn text(name: &'static str, nick: &'static str, blurb: &'static str) -> glib::ParamSpec {
    glib::ParamSpecString::builder(name).nick(nick).blurb(blurb).mutable_ready().build()
}

/// A choice, off.
pub(crate) fn choice(
    name: &'static str,
    nick: &'static str,
    blurb: &'static str,
) -> glib::ParamSpec {
    glib::ParamSpecBoolean::builder(name).nick(nick).blurb(blurb).mutable_ready().build()
}

/// A number from `least` to `most`.
pub(crate) fn number(
    name: &'static str,
    nick: &'static str,
    blurb: &'static str,
    (least, most, default): (u32, u32, u32),
) -> glib::ParamSpec {
    glib::ParamSpecUInt::builder(name)
        .nick(nick)
        .blurb(blurb)
        .minimum(least)
        .maximum(most)
        .default_value(default)
        .mutable_ready()
        .build()
}

/// Statistics, which can only be read.
pub(crate) fn stats(blurb: &'static str) -> glib::ParamSpec {
    glib::ParamSpecBoxed::builder::<gstreamer::Structure>("stats")
        .nick("Statistics")
        .blurb(blurb)
        .read_only()
        .build()
}
