//! A stream of bytes in memory, whose far end a test plays. Nothing blocks.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::{Arc, Mutex};

use crate::channel::{Channel, Waiting};
use crate::core::lock;

/// How a far end has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Finished,
    Reset,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// What the far end has sent, and was not read.
    pub(super) incoming: VecDeque<u8>,
    pub(super) ended: Option<End>,
    /// What was written to the far end.
    pub(super) outgoing: Vec<u8>,
    /// How many bytes more the far end takes.
    pub(super) room: usize,
    /// This end has closed.
    pub(super) is_hung_up: bool,
}

/// A clone is the same stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(Arc<Mutex<State>>);

impl Memory {
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut lock(&self.0))
    }
}

impl Read for &Memory {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.with(|state| {
            if state.is_hung_up {
                return Ok(0);
            }
            match (state.incoming.is_empty(), state.ended) {
                (_, Some(End::Reset)) => Err(ErrorKind::ConnectionReset.into()),
                (true, Some(End::Finished)) => Ok(0),
                (true, None) if !room.is_empty() => Err(ErrorKind::WouldBlock.into()),
                _ => state.incoming.read(room),
            }
        })
    }
}

impl Write for &Memory {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.with(|state| {
            if state.is_hung_up {
                return Err(ErrorKind::BrokenPipe.into());
            }
            if state.ended == Some(End::Reset) {
                return Err(ErrorKind::ConnectionReset.into());
            }
            if state.room == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let taken = data.len().min(state.room);
            state.room -= taken;
            state.outgoing.extend(&data[..taken]);
            Ok(taken)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Channel for Memory {
    fn receive(&self, room: &mut [u8], _: Waiting) -> io::Result<usize> {
        (&*self).read(room)
    }

    fn receive_vectored(&self, places: &mut [IoSliceMut<'_>], _: Waiting) -> io::Result<usize> {
        let mut all = 0;
        for place in places {
            match (&*self).read(place) {
                Ok(got) if got == place.len() => all += got,
                Ok(got) => return Ok(all + got),
                Err(_) if all > 0 => return Ok(all),
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn send(&self, data: &[u8], _: Waiting) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn send_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        (&*self).write(&whole)
    }

    fn finish(&self) {}

    fn hang_up(&self) {
        self.with(|state| state.is_hung_up = true);
    }
}
