//! What calls return, and the text of the last error.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ontempo_transport::live::Error;

/// What a call returns: 0 or above is no error.
#[allow(non_camel_case_types)]
pub type ontempo_status = i32;

/// Done.
pub const ONTEMPO_OK: i32 = 0;
/// Nothing happened within the time limit.
pub const ONTEMPO_TIMED_OUT: i32 = 1;
/// The flow has ended: nothing more comes.
pub const ONTEMPO_ENDED: i32 = 2;
/// An argument is NULL where it may not be, or out of range.
pub const ONTEMPO_ERROR_ARGUMENT: i32 = -1;
/// A handle is NULL, was freed, or is of another kind.
pub const ONTEMPO_ERROR_HANDLE: i32 = -2;
/// An option has no such name, or not such a value.
pub const ONTEMPO_ERROR_OPTION: i32 = -3;
/// An address cannot be resolved or bound.
pub const ONTEMPO_ERROR_ADDRESS: i32 = -4;
/// The system has no more threads, file descriptors or random numbers.
pub const ONTEMPO_ERROR_SYSTEM: i32 = -5;
/// A certificate, key or token cannot be used.
pub const ONTEMPO_ERROR_IDENTITY: i32 = -6;
/// The peer did not answer, refused, or could not be verified.
pub const ONTEMPO_ERROR_NOT_CONNECTED: i32 = -7;
/// The connection is closed or lost.
pub const ONTEMPO_ERROR_CLOSED: i32 = -8;
/// The peer takes no more flows now, or the flow's label is too long.
pub const ONTEMPO_ERROR_FLOW: i32 = -9;
/// The unit is too long, or its deadline or dependencies are wrong.
pub const ONTEMPO_ERROR_UNIT: i32 = -10;
/// A fault of the library; please report it.
pub const ONTEMPO_ERROR_INTERNAL: i32 = -11;

/// An error: its status and its sentence.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: i32,
    pub(crate) sentence: String,
}

impl Failure {
    pub(crate) fn new(status: i32, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    pub(crate) fn argument(sentence: impl Into<String>) -> Self {
        Self::new(ONTEMPO_ERROR_ARGUMENT, sentence)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Bind(_) => ONTEMPO_ERROR_ADDRESS,
            Error::Identity(_) => ONTEMPO_ERROR_IDENTITY,
            Error::Connect(_) | Error::NotConnected { .. } => ONTEMPO_ERROR_NOT_CONNECTED,
            Error::Closed(_) => ONTEMPO_ERROR_CLOSED,
            Error::Flow(_) => ONTEMPO_ERROR_FLOW,
            Error::Unit(_) => ONTEMPO_ERROR_UNIT,
            // The error type is non-exhaustive.
            _ => ONTEMPO_ERROR_SYSTEM,
        };
        Self::new(status, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call: keeps the sentence of its error, and lets no panic into C.
pub(crate) fn call(work: impl FnOnce() -> Result<i32, Failure>) -> ontempo_status {
    let done = catch_unwind(AssertUnwindSafe(work));
    let failure = match done {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(ONTEMPO_ERROR_INTERNAL, "a fault of libontempo; please report it"),
    };
    // A text of the peer has no control characters, but one of the program may hold a zero.
    let sentence = CString::new(failure.sentence.replace('\0', "\\0")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = sentence);
    failure.status
}

/// A sentence that says what the last error of this thread was, in lower case; empty before the
/// first. Valid until the next call of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn ontempo_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}
