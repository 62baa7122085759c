//! Files and folders that a user names, also where other users can write.
//!
//! [`Output`] and [`OutputFolder`] are written to, [`read_own`] reads what this user keeps secret,
//! [`write_new`] writes it. [`open_regular`] and [`read_regular`] read what others may have made. For Linux.

mod beside;
mod output;
mod own;
mod part;
mod read;
#[cfg(test)]
mod tests;
mod user;

pub use output::{Output, OutputFolder};
pub use own::{read_own, read_token, write_new};
pub use read::{open_regular, read_regular};
pub use user::{is_of_user, starter};
