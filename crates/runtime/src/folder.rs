//! The folder of one run on disk. A run appears in it completely or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::tables::{ResultTable, write_parquet};

/// The file that describes the others. It is written last: a folder without it holds no
/// complete run.
pub const MANIFEST: &str = "run.json";

/// Where files are written until all are complete.
const PARTIAL: &str = ".partial";

/// The folder of a run that is being written.
///
/// Files are written to a folder within it and renamed when all are complete, so that a run
/// that fails, on a full disk for example, leaves the earlier contents unchanged.
#[derive(Debug)]
pub struct RunFolder {
    folder: PathBuf,
    partial: PathBuf,
    /// Whether this run created the folder.
    made: bool,
    files: Vec<String>,
}

impl RunFolder {
    /// Begins a run in `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// If the folder cannot be created or written.
    pub fn begin(folder: &Path) -> io::Result<Self> {
        let partial = folder.join(PARTIAL);
        let made = !folder.exists();
        // Left over from a run that was killed.
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(|error| naming(&partial, error))?;
        }
        fs::create_dir_all(&partial).map_err(|error| naming(folder, error))?;
        Ok(Self { folder: folder.to_owned(), partial, made, files: Vec::new() })
    }

    /// Creates the file `name` for writing.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(&mut self, name: &str) -> io::Result<File> {
        let file = File::create(self.partial.join(name)).map_err(|error| self.at(name, error))?;
        self.files.push(name.to_owned());
        Ok(file)
    }

    /// Writes `tables`, one Parquet file each.
    ///
    /// # Errors
    /// If one cannot be written, such as on a full disk.
    pub fn write_tables(&mut self, tables: &[ResultTable]) -> io::Result<()> {
        for table in tables {
            let name = format!("{}.parquet", table.name);
            let file = self.create(&name)?;
            write_parquet(&table.batch, &file).map_err(|error| self.at(&name, error))?;
        }
        Ok(())
    }

    /// Moves all files to their final names: those of an earlier run are replaced, its [`MANIFEST`]
    /// first, and `manifest`, if given, is written last.
    ///
    /// # Errors
    /// If a file cannot be written or renamed.
    pub fn keep(mut self, manifest: Option<&str>) -> io::Result<()> {
        if let Some(text) = manifest {
            let mut file = self.create(MANIFEST)?;
            let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            written.map_err(|error| self.at(MANIFEST, error))?;
        }
        match fs::remove_file(self.folder.join(MANIFEST)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.at(MANIFEST, error));
            }
            _ => {}
        }
        self.made = false;
        for name in &self.files {
            fs::rename(self.partial.join(name), self.folder.join(name))
                .map_err(|error| self.at(name, error))?;
        }
        Ok(())
    }

    fn at(&self, name: &str, error: io::Error) -> io::Error {
        naming(&self.folder.join(name), error)
    }
}

impl Drop for RunFolder {
    /// Removes incomplete files. A failure to remove them does no harm: no reader looks into that
    /// folder.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.partial);
        if self.made {
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// `error` with the path of the file.
fn naming(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_appear_together_and_an_abandoned_run_leaves_what_was_there() {
        let root = std::env::temp_dir().join(format!("ontempo-folder-{}", std::process::id()));
        let mut run = RunFolder::begin(&root).unwrap();
        run.create("a").unwrap().write_all(b"first").unwrap();
        assert_eq!(names(&root), [PARTIAL]);
        run.keep(Some("{}")).unwrap();
        assert_eq!(names(&root), ["a", MANIFEST]);

        let mut run = RunFolder::begin(&root).unwrap();
        run.create("a").unwrap().write_all(b"second").unwrap();
        drop(run);
        assert_eq!(names(&root), ["a", MANIFEST]);
        assert_eq!(fs::read(root.join("a")).unwrap(), b"first");

        // A run without a manifest must not keep that of an earlier run, nor use the files that a
        // killed run left behind.
        fs::create_dir(root.join(PARTIAL)).unwrap();
        fs::write(root.join(PARTIAL).join("b"), "half").unwrap();
        RunFolder::begin(&root).unwrap().keep(None).unwrap();
        assert_eq!(names(&root), ["a"]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_folder_made_for_an_abandoned_run_goes_with_it() {
        let root = std::env::temp_dir().join(format!("ontempo-made-{}", std::process::id()));
        drop(RunFolder::begin(&root).unwrap());
        assert!(!root.exists());
    }
}
