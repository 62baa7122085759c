//! The target of what is received.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;

use ontempo_place::Output;
use ontempo_session::file::Offer;
use ontempo_session::{PartFile, Target};
use ontempo_udp::{Fragmentation, Socket, SocketOptions, any_for};
use rustix::io::Errno;

use super::documents::Documents;
use super::sdp;
use crate::address::resolve;
use crate::arguments::{Place, Receive as Arguments};
use crate::failure::{Failure, environment};
use crate::place::output_failure;
use crate::signals::is_stopped;

/// Mode of a new file, before the umask.
const NEW_FILE: u32 = 0o666;

/// A file that cannot be made is an error now, and not when a sender comes.
pub(super) fn check_file(path: &Path, overwrite: bool) -> Result<(), Failure> {
    let named = format!("--to {}", path.display());
    let place = Output::at(path, !overwrite).map_err(|error| output_failure(&named, &error))?;
    if path.is_dir() {
        return Err(Failure::Input(format!("{named}: it is a folder: name a file in it")));
    }
    if place.is_file() && !overwrite { Err(exists(path)) } else { Ok(()) }
}

/// What is wrong with the name of a player's host: it is looked up for each stream.
pub(super) fn unknown_player(arguments: &Arguments) -> Option<String> {
    let looked_up = match arguments.to.as_ref()? {
        Place::Udp(address) => resolve(address, "--to udp://"),
        Place::Rtp(address) => resolve(address, "--to rtp://"),
        Place::Pipe | Place::File(_) => return None,
    };
    let failure = looked_up.err()?;
    Some(format!("{}; it is looked up again when a sender comes", failure.text()))
}

fn exists(path: &Path) -> Failure {
    Failure::Input(format!("--to {}: it exists: --overwrite replaces it", path.display()))
}

pub(super) fn target(
    to: &Place,
    arguments: &Arguments,
    documents: Documents,
) -> Result<Target, Failure> {
    match to {
        Place::Udp(address) => {
            let to = resolve(address, "--to udp://")?;
            Ok(Target::Datagrams { socket: to_player(to)?, to, control: None, described: None })
        }
        Place::Rtp(address) => {
            let to = resolve(address, "--to rtp://")?;
            let control = SocketAddr::new(to.ip(), to.port().saturating_add(1));
            let described = arguments.sdp.clone().map(|path| sdp::write(path, to, documents));
            let control = Some(control);
            Ok(Target::Datagrams { socket: to_player(to)?, to, control, described })
        }
        Place::Pipe => {
            // Without the buffer of the standard library: bytes count as written when they are.
            let to = io::stdout().as_fd().try_clone_to_owned().map_err(environment)?;
            let to = Box::new(File::from(to));
            Ok(Target::Bytes { to, name: "standard output".to_owned() })
        }
        Place::File(path) => {
            let name = path.display().to_string();
            let file = output_file(path, arguments.overwrite)?;
            Ok(Target::Bytes { to: Box::new(file), name })
        }
    }
}

/// A socket to a player: a datagram longer than the path's packets goes in fragments.
fn to_player(to: SocketAddr) -> Result<Socket, Failure> {
    let options = SocketOptions { fragmentation: Fragmentation::Allow, ..Default::default() };
    Socket::bind(any_for(to), options).map_err(environment)
}

/// The file in progress beside `--to`; `None` if there is a device, a pipe or a link.
pub(super) fn part_file(
    path: &Path,
    offer: Offer,
    overwrite: bool,
) -> Result<Option<PartFile>, Failure> {
    if place(path, overwrite)?.is_some_and(|place| place.exists() && !place.is_file()) {
        return Ok(None);
    }
    match PartFile::open(path, offer, overwrite, &is_stopped) {
        Ok(part) => Ok(Some(part)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && error.get_ref().is_none() => {
            Err(exists(path))
        }
        Err(error) => Err(output_failure(&format!("--to {}", path.display()), &error)),
    }
}

/// Where `--to` leads; `None` if a folder on the way is missing, which opening reports.
fn place(path: &Path, overwrite: bool) -> Result<Option<Output>, Failure> {
    match Output::at(path, !overwrite) {
        Ok(place) => Ok(Some(place)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(output_failure(&format!("--to {}", path.display()), &error)),
    }
}

/// A new file; with `overwrite`, in place of an old one. Devices and named pipes are opened.
fn output_file(path: &Path, overwrite: bool) -> Result<File, Failure> {
    let named = format!("--to {}", path.display());
    let failed = |error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) if overwrite => Failure::Input(format!(
            "{named}: it is a link, which --overwrite does not follow: name its file"
        )),
        _ => output_failure(&named, &error),
    };
    let place = Output::at(path, !overwrite).map_err(failed)?;
    match place.create_new(NEW_FILE) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let file = place.open(is_stopped).map_err(failed)?;
            match file.metadata().map_err(failed)?.is_file() {
                true if !overwrite => return Err(exists(path)),
                true => file.set_len(0).map_err(failed)?,
                false => {}
            }
            Ok(file)
        }
        made => made.map_err(failed),
    }
}
