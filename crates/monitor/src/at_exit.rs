//! What is done when the process ends normally, which no safe wrapper offers.
#![allow(unsafe_code)]

use std::sync::Once;

extern "C" fn on_exit() {
    super::publish::on_exit();
}

/// Has this process's reports removed when `main` returns or `exit` is called: a program need not
/// close its sockets first, and the thread that publishes would not wake up again.
pub(crate) fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: `on_exit` captures nothing, lives as long as the program's code and does not
        // unwind. If there is no room for it, reports stay until this user's next publisher.
        let _ = unsafe { libc::atexit(on_exit) };
    });
}
