//! The file that a receiver fills beside its target, and the record of whose it is.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use ontempo_place::Output;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::message::{Digest, Offer};

/// Added to the target's name.
const PART: &str = ".part";
const RECORD: &str = ".part.json";

/// Mode of a new file, before the umask.
const NEW_FILE: u32 = 0o666;

/// Maximum size of a record, bytes.
const MAX_RECORD: u64 = 4096;

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// Which file a partial one is the beginning of.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    version: u32,
    file: Offer,
}

const VERSION: u32 = 1;

/// What was there of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Nothing.
    New,
    /// This many bytes of it.
    Resumed(u64),
    /// This many bytes of another file, or of another state of it; they are discarded.
    Other(u64),
}

/// A file that is filled beside its target, and takes its name when it is whole: `NAME.part`, with a
/// record `NAME.part.json` of the sender's file.
pub struct PartFile {
    name: String,
    target: Output,
    part: Output,
    record: Output,
    file: File,
    offer: Offer,
    hasher: Context,
    written: u64,
    replaces: bool,
    beginning: Beginning,
}

fn sentence(kind: ErrorKind, sentence: impl Into<String>) -> io::Error {
    io::Error::new(kind, sentence.into())
}

impl PartFile {
    /// Goes on with what a former transfer of the same file has left beside `path`, or begins anew. With
    /// `replaces` the whole file replaces one at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], with a sentence, if another user could have put there what
    /// is in the way; [`ErrorKind::AlreadyExists`] if there is a file at `path`, or a `NAME.part` that is
    /// none of ours; [`ErrorKind::Interrupted`] if stopped while it reads; those of the system.
    pub fn open(
        path: &Path,
        offer: Offer,
        replaces: bool,
        is_stopped: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let target = Output::at(path, !replaces)?;
        if !replaces && target.exists() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let (part, record) = (target.beside(PART)?, target.beside(RECORD)?);
        let known = match record.read_own(MAX_RECORD) {
            Ok(text) => Some(serde_json::from_slice::<Record>(&text).ok()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (file, is_new) = match part.open_own(None) {
            Ok(_) if known.is_none() => {
                let what = format!("{}{PART} exists and is of no transfer", path.display());
                return Err(sentence(ErrorKind::AlreadyExists, format!("{what}: remove it")));
            }
            Ok(file) => (file, false),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Before the file, so that none is left that seems to be of another.
                write_record(&record, offer)?;
                (part.open_own(Some(NEW_FILE))?, true)
            }
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        let is_same = known.flatten().is_some_and(|known| {
            known.version == VERSION && known.file == offer && length <= offer.length
        });
        let mut it = Self {
            name: path.display().to_string(),
            target,
            part,
            record,
            file,
            offer,
            hasher: Context::new(&SHA256),
            written: 0,
            replaces,
            beginning: Beginning::New,
        };
        if is_same && !is_new {
            it.hash_existing(is_stopped)?;
            it.beginning = Beginning::Resumed(it.written);
        } else if !is_new {
            it.begin_anew(offer)?;
        }
        if it.written == 0 && it.beginning == Beginning::Resumed(0) {
            it.beginning = Beginning::New;
        }
        Ok(it)
    }

    fn hash_existing(&mut self, is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            if is_stopped() {
                return Err(ErrorKind::Interrupted.into());
            }
            match self.file.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.hasher.update(&piece[..count]);
                    self.written += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Discards what there is: the sender's file is this one.
    ///
    /// # Errors
    /// Those of the system.
    pub fn begin_anew(&mut self, offer: Offer) -> io::Result<()> {
        let had = self.file.metadata()?.len();
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        write_record(&self.record, offer)?;
        (self.offer, self.written, self.hasher) = (offer, 0, Context::new(&SHA256));
        self.beginning = if had == 0 { Beginning::New } else { Beginning::Other(had) };
        Ok(())
    }

    /// What was there.
    pub fn beginning(&self) -> Beginning {
        self.beginning
    }

    /// The sender's file.
    pub fn offer(&self) -> Offer {
        self.offer
    }

    /// Bytes that it has.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Their digest.
    pub fn digest(&self) -> Digest {
        self.hasher.clone().finish().into()
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// A sentence.
    pub fn write(&mut self, data: &[u8]) -> Result<(), String> {
        self.file.write_all(data).map_err(|error| {
            format!("cannot write {}{PART}: {error}; {}", self.name, self.what_is_missing())
        })?;
        self.hasher.update(data);
        self.written += data.len() as u64;
        Ok(())
    }

    /// What is missing, and where the rest is.
    pub fn what_is_missing(&self) -> String {
        let Self { written, offer: Offer { length, .. }, name, .. } = self;
        let missing = length.saturating_sub(*written);
        format!(
            "{missing} of {length} bytes are missing; the others are in {name}{PART}, and the same \
             commands go on from there"
        )
    }

    /// Gives the file its name if it is whole.
    ///
    /// # Errors
    /// A sentence: it is not what the sender has, and is discarded; or the system's error.
    pub fn finish(self, length: u64, digest: Digest) -> Result<(), String> {
        let found = self.digest();
        if length != self.written || digest != found {
            let sentence = format!(
                "{} bytes with the SHA-256 {found} have arrived, the sender's file has {length} with \
                 {digest}: they are discarded; send it again",
                self.written
            );
            self.discard();
            return Err(sentence);
        }
        let failed = |error: io::Error| {
            let why = match error.kind() {
                ErrorKind::AlreadyExists => {
                    "it exists now: --overwrite replaces it; what has arrived stays beside it"
                        .to_owned()
                }
                _ => error.to_string(),
            };
            format!("{}: {why}", self.name)
        };
        self.file.sync_all().map_err(failed)?;
        self.part.rename(&self.file, &self.target, self.replaces).map_err(failed)?;
        self.forget_record();
        Ok(())
    }

    /// Removes what there is.
    pub fn discard(self) {
        // What stays is discarded by the next transfer.
        let _ = self.part.remove(&self.file);
        self.forget_record();
    }

    fn forget_record(&self) {
        if let Ok(record) = self.record.open_own(None) {
            let _ = self.record.remove(&record);
        }
    }
}

fn write_record(record: &Output, file: Offer) -> io::Result<()> {
    let text = serde_json::to_vec(&Record { version: VERSION, file })?;
    record.replace(&text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A folder that is gone with this.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ontempo-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn open(&self, offer: Offer, replaces: bool) -> io::Result<PartFile> {
            PartFile::open(&self.0.join("film"), offer, replaces, &|| false)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("entries");
            let name = |entry: io::Result<fs::DirEntry>| {
                entry.expect("an entry").file_name().to_string_lossy().into_owned()
            };
            let mut names: Vec<String> = entries.map(name).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn of(bytes: &[u8]) -> Digest {
        ring::digest::digest(&SHA256, bytes).into()
    }

    const OFFER: Offer = Offer { length: 11, modified: 7, name: 1 };

    #[test]
    fn what_a_former_transfer_has_left_is_gone_on_with_and_named_when_it_is_whole() {
        let folder = Folder::new("part-resume");
        let mut first = folder.open(OFFER, false).expect("opened");
        first.write(b"hello ").expect("written");
        drop(first);
        assert_eq!(folder.names(), ["film.part", "film.part.json"]);
        let mut second = folder.open(OFFER, false).expect("opened");
        assert_eq!(second.beginning(), Beginning::Resumed(6));
        assert_eq!((second.written(), second.digest()), (6, of(b"hello ")));
        second.write(b"world").expect("written");
        second.finish(11, of(b"hello world")).expect("whole");
        assert_eq!(folder.names(), ["film"]);
        assert_eq!(fs::read(folder.0.join("film")).expect("read"), b"hello world");
    }

    #[test]
    fn bytes_of_another_file_are_discarded_and_a_wrong_digest_names_nothing() {
        let folder = Folder::new("part-other");
        let mut first = folder.open(OFFER, false).expect("opened");
        first.write(b"hello ").expect("written");
        drop(first);
        let mut second = folder.open(Offer { modified: 8, ..OFFER }, false).expect("opened");
        assert_eq!((second.beginning(), second.written()), (Beginning::Other(6), 0));
        second.write(b"other world").expect("written");
        let sentence = second.finish(11, of(b"hello world")).expect_err("another");
        assert!(sentence.contains("discarded"), "{sentence}");
        assert_eq!(folder.names(), [""; 0]);
    }

    #[test]
    fn files_that_are_in_the_way_are_left_as_they_are() {
        let folder = Folder::new("part-way");
        let (film, part) = (folder.0.join("film"), folder.0.join("film.part"));
        fs::write(&part, "precious").expect("written");
        let error = folder.open(OFFER, false).err().expect("refused");
        assert!(error.to_string().contains("of no transfer"), "{error}");
        assert_eq!(fs::read(&part).expect("read"), b"precious");
        fs::remove_file(&part).expect("removed");
        let first = folder.open(OFFER, false).expect("opened");
        assert_eq!(folder.open(OFFER, false).err().map(|e| e.kind()), Some(ErrorKind::WouldBlock));
        fs::write(&film, "precious").expect("written");
        let mut first = first;
        first.write(b"hello world").expect("written");
        let sentence = first.finish(11, of(b"hello world")).expect_err("it exists");
        assert!(sentence.contains("--overwrite"), "{sentence}");
        assert_eq!(fs::read(&film).expect("read"), b"precious");
        let second = folder.open(OFFER, true).expect("opened");
        assert_eq!(second.beginning(), Beginning::Resumed(11));
        second.finish(11, of(b"hello world")).expect("whole");
        assert_eq!(fs::read(&film).expect("read"), b"hello world");
        assert_eq!(folder.names(), ["film"]);
        std::os::unix::fs::symlink(&film, &part).expect("a link");
        fs::write(folder.0.join("film.part.json"), "{}").expect("written");
        assert!(folder.open(OFFER, true).is_err());
        assert_eq!(fs::read(&film).expect("read"), b"hello world");
    }
}
