//! Retry packets that a client drops before the stack sees them.
//!
//! The stack (noq-proto 1.4.0) discards a Retry packet whose integrity tag is wrong, but counts it as a packet
//! of the server's. It then discards all further Retry packets, and the handshake cannot end any more.

use noq_proto::ConnectionId;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// RFC 9001, section 5.8.
const KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
const NONCE: [u8; 12] = [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];

const TAG: usize = 16;

/// Whether a datagram begins as a Retry packet of version 1 does (RFC 9000, section 17.2.5).
pub(crate) fn is_retry(datagram: &[u8]) -> bool {
    matches!(datagram, [0xf0..=0xff, 0, 0, 0, 1, ..])
}

/// Whether the integrity tag of a Retry packet is right, for the first destination ID of the client (RFC 9001, section
/// 5.8).
pub(crate) fn is_undamaged(retry: &[u8], first_id: &ConnectionId) -> bool {
    let Some((head, tag)) = retry.split_last_chunk::<TAG>() else { return false };
    let Ok(key) = UnboundKey::new(&AES_128_GCM, &KEY) else { return false };
    // An ID has at most 20 bytes.
    let pseudo_packet = [&[first_id.len() as u8], &first_id[..], head].concat();
    let nonce = Nonce::assume_unique_for_key(NONCE);
    // Nothing is encrypted but the tag.
    LessSafeKey::new(key)
        .open_in_place(nonce, Aad::from(pseudo_packet), &mut tag.to_owned())
        .is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 9001, appendix A.4.
    const RETRY: [u8; 36] = [
        0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x08, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5,
        0x74, 0x6f, 0x6b, 0x65, 0x6e, 0x04, 0xa2, 0x65, 0xba, 0x2e, 0xff, 0x4d, 0x82, 0x90, 0x58,
        0xfb, 0x3f, 0x0f, 0x24, 0x96, 0xba,
    ];
    const FIRST_ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

    #[test]
    fn the_packet_of_the_rfc_is_undamaged() {
        assert!(is_retry(&RETRY));
        assert!(is_undamaged(&RETRY, &ConnectionId::new(&FIRST_ID)));
    }

    proptest! {
        #[test]
        fn a_flipped_bit_or_a_missing_end_is_noticed(bit in 0..RETRY.len() * 8, length in 0..RETRY.len()) {
            let mut damaged = RETRY;
            damaged[bit / 8] ^= 1 << (bit % 8);
            let id = ConnectionId::new(&FIRST_ID);
            prop_assert!(!is_undamaged(&damaged, &id));
            prop_assert!(!is_undamaged(&RETRY[..length], &id));
            prop_assert!(!is_undamaged(&RETRY, &ConnectionId::new(&FIRST_ID[1..])));
        }
    }
}
