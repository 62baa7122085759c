//! Requests to the kernel by rtnetlink (RFC 3549, rtnetlink(7)).

use std::cell::Cell;
use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A socket of NETLINK_ROUTE for requests; the kernel answers each before the next is sent.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: Cell<u32>,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: Cell::new(0) })
    }

    /// Requests one object.
    ///
    /// # Errors
    /// The kernel's, and an answer that cannot be decoded.
    pub(crate) fn get(
        &self,
        request: RouteNetlinkMessage,
        take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.request(request, false, take)
    }

    /// Requests all objects of a kind; each is given to `take`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn dump(
        &self,
        request: RouteNetlinkMessage,
        take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.request(request, true, take)
    }

    fn request(
        &self,
        request: RouteNetlinkMessage,
        all: bool,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        let number = self.sequence.get().wrapping_add(1);
        self.sequence.set(number);
        let mut message =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(request));
        message.header.flags = NLM_F_REQUEST | if all { NLM_F_DUMP } else { 0 };
        message.header.sequence_number = number;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (got, _) = self.socket.recv_from_full()?;
            let mut rest = got.as_slice();
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(io::Error::other)?;
                let length = (answer.header.length as usize).next_multiple_of(4);
                rest = rest.get(length.max(4)..).unwrap_or_default();
                if answer.header.sequence_number != number {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(inner) => take(inner),
                    _ => {}
                }
                if !all {
                    return Ok(());
                }
            }
        }
    }
}
