//! Files and folders that a user names, also where other users can write.
//!
//! [`Output`] and [`OutputFolder`] are written to, [`read_own`] reads what this user keeps secret,
//! [`write_new`] writes it. [`open_regular`] and [`read_regular`] read what others may have made;
//! [`make_system_folder`] and [`check_system_folder`] are for what root's programs go by. For Linux.

mod acl;
mod beside;
mod output;
mod own;
mod part;
mod read;
mod system;
#[cfg(test)]
mod tests;
mod user;

pub use acl::ACL;
pub use output::{Output, OutputFolder};
pub use own::{read_own, read_token, write_new};
pub use read::{open_regular, read_regular};
pub use system::{check_system_folder, is_root_or_this_user, make_system_folder};
pub use user::{is_of_user, starter};
