//! Errors of a session as those of an element.

use gstreamer as gst;
use ontempo_session::Error;
use ontempo_transport::CloseReason;

/// An error with the code that applications look at, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) code: gst::ResourceError,
    pub(crate) sentence: String,
}

impl Failed {
    /// `otherwise` where the reason tells no better code.
    pub(crate) fn of(error: &Error, otherwise: gst::ResourceError) -> Self {
        let code = match error.close_reason() {
            Some(CloseReason::WrongToken | CloseReason::Untrusted) => {
                gst::ResourceError::NotAuthorized
            }
            Some(CloseReason::Busy) => gst::ResourceError::Busy,
            Some(CloseReason::NoAnswer) => gst::ResourceError::NotFound,
            _ => otherwise,
        };
        Self { code, sentence: error.advised() }
    }
}

/// An error of the settings.
pub(crate) fn wrong(sentence: String) -> gst::ErrorMessage {
    gst::error_msg!(gst::ResourceError::Settings, ("{sentence}"))
}
