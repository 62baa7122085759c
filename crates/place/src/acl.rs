//! Whom a file's ACL (acl(5)) names beside its owner and its group. Of these, the mode shows only what the mask lets
//! through, as the group's bits: `chmod 640` for a group lets them in, too.

use std::fs::File;
use std::io;

use rustix::fs::fgetxattr;
use rustix::io::Errno;

use crate::user::is_trusted;

/// The extended attribute that holds a file's ACL (acl(5)).
pub const ACL: &str = "system.posix_acl_access";
/// Its first word (linux/posix_acl_xattr.h).
const VERSION: u32 = 2;
/// Bytes of an entry: tag, rights, number.
const ENTRY: usize = 8;
/// Tags of entries (linux/posix_acl.h).
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
/// Bytes of an extended attribute at most (xattr(7)).
const MAX_ACL: usize = 64 << 10;

/// An entry of an ACL that gives a user or a group these rights (4 reads, 2 writes, 1 executes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    tag: u16,
    rights: u16,
    number: u32,
}

/// Why others than this user, root, and the groups of both file and process have some of the `rights` by an ACL, as
/// setfacl(1) names them: `user:1000`; `None` if they have not.
///
/// # Errors
/// Those of the system, but for a file system without ACLs.
pub(crate) fn stranger(file: &File, group: u32, rights: u32) -> io::Result<Option<String>> {
    let mut bytes = Vec::with_capacity(MAX_ACL);
    match fgetxattr(file, ACL, rustix::buffer::spare_capacity(&mut bytes)) {
        Ok(_) => {}
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let named = named(&bytes).ok_or_else(|| io::Error::other("its ACL cannot be understood"))?;
    let own = [group, rustix::process::getegid().as_raw()];
    let is_stranger = |one: &&Named| match one.tag {
        USER => !is_trusted(one.number),
        _ => !own.contains(&one.number),
    };
    let mut has_rights = named.iter().filter(|one| u32::from(one.rights) & rights != 0);
    Ok(has_rights.find(is_stranger).map(|one| {
        let kind = if one.tag == USER { "user" } else { "group" };
        format!("{kind}:{}", one.number)
    }))
}

/// The users and groups that it names, with the rights that its mask leaves them; `None` if it is none.
fn named(acl: &[u8]) -> Option<Vec<Named>> {
    let (version, entries) = acl.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % ENTRY != 0 {
        return None;
    }
    let entries = entries.chunks_exact(ENTRY).map(|entry| {
        let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let number = u32::from(half(4)) | u32::from(half(6)) << 16;
        Named { tag: half(0), rights: half(2), number }
    });
    let entries: Vec<Named> = entries.collect();
    let mask = entries.iter().find(|entry| entry.tag == MASK).map_or(7, |entry| entry.rights);
    let named = entries.into_iter().filter(|entry| [USER, GROUP].contains(&entry.tag));
    Some(named.map(|entry| Named { rights: entry.rights & mask, ..entry }).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use ontempo_testing::{record_skip, require_root};
    use rustix::fs::{XattrFlags, fsetxattr};

    use super::*;
    use crate::read_own;

    /// An ACL of a file that its owner may read and write, with these entries: tag, rights, number.
    fn acl(more: &[(u16, u16, u32)]) -> Vec<u8> {
        let none = u32::MAX;
        let mut entries = vec![(0x01, 6, none), (0x04, 0, none), (0x20, 0, none)];
        entries.extend(more);
        entries.sort_unstable();
        let entry = |(tag, rights, number): &(u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &number.to_le_bytes()].concat()
        };
        let entries: Vec<u8> = entries.iter().flat_map(entry).collect();
        [&VERSION.to_le_bytes()[..], &entries].concat()
    }

    #[test]
    fn rights_are_those_that_the_mask_leaves_and_what_is_no_acl_is_none() {
        let named_of = |bytes: &[u8]| {
            named(bytes).map(|all| {
                all.iter().map(|one| (one.tag, one.rights, one.number)).collect::<Vec<_>>()
            })
        };
        let bytes = acl(&[(USER, 6, 1_000), (GROUP, 4, 70_000), (MASK, 2, u32::MAX)]);
        assert_eq!(named_of(&bytes), Some(vec![(USER, 2, 1_000), (GROUP, 0, 70_000)]));
        assert_eq!(named_of(&acl(&[])), Some(Vec::new()));
        for wrong in [&b""[..], &[1, 0, 0, 0], &bytes[..bytes.len() - 1]] {
            assert_eq!(named_of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_secret_that_an_acl_opens_to_another_user_is_not_read_and_one_for_this_user_is() {
        if !require_root() {
            return;
        }
        let path = std::env::temp_dir().join(format!("ontempo-acl-{}", std::process::id()));
        fs::write(&path, "known").expect("written");
        let file = File::open(&path).expect("open");
        let group = file.metadata().expect("there").gid();
        let set = |more: &[(u16, u16, u32)]| {
            fsetxattr(&file, ACL, &acl(more), XattrFlags::empty())?;
            // What an operator does for the group.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640))
        };
        if set(&[]).is_err() {
            return record_skip("the folder for temporary files has no ACLs");
        }
        let mask = (MASK, 0, u32::MAX);
        for (entry, stranger) in [
            ((USER, 4, 1_234), Some("user:1234")),
            ((GROUP, 4, 4_321), Some("group:4321")),
            ((USER, 2, 1_234), None),
            ((USER, 4, 0), None),
            ((GROUP, 4, group), None),
        ] {
            set(&[entry, mask]).expect("root may");
            let read = read_own(&path, 0o007, || false);
            match stranger {
                Some(words) => {
                    let error = read.expect_err(words).to_string();
                    let advice = format!("setfacl -x {words} {}", path.display());
                    assert!(error.ends_with(&advice), "{error}");
                }
                None => assert_eq!(read.expect("its own"), b"known", "{entry:?}"),
            }
            // What is no secret may be everybody's to read.
            assert_eq!(read_own(&path, 0, || false).expect("its own"), b"known");
        }
        fs::remove_file(path).expect("removed");
    }
}
