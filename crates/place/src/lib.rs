//! Files and folders that a user names, also where other users can write.
//!
//! [`Output`] and [`OutputFolder`] are written to, [`open_own`] and [`read_own`] read what this user keeps
//! secret, [`write_new`] writes it. For Linux.

mod beside;
mod output;
mod own;
mod user;

pub use output::{Output, OutputFolder};
pub use own::{open_own, read_own, write_new};
pub use user::{is_of_user, starter};
