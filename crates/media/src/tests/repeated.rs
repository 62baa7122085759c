//! Units that come again: a sender that is connected anew repeats what it does not know to have arrived.

use proptest::prelude::*;

use super::{any_datagram, at, cut};
use crate::{Depacketizer, DepacketizerOptions, PacketizerOptions, Release};

proptest! {
    #[test]
    fn a_datagram_whose_units_come_again_is_restored_once(
        datagrams in prop::collection::vec(any_datagram(), 1..40), again in prop::collection::vec(any::<bool>(), 200),
    ) {
        let units = cut(&datagrams, PacketizerOptions::default());
        for release in [Release::InOrder, Release::WhenWhole] {
            let options = DepacketizerOptions { release, ..DepacketizerOptions::default() };
            let (mut depacketizer, mut restored) = (Depacketizer::new(options), Vec::new());
            let repeated = units.iter().zip(&again).filter(|(_, again)| **again).map(|(unit, _)| unit);
            for unit in units.iter().chain(repeated) {
                depacketizer.push(at(0), unit);
                restored.extend(std::iter::from_fn(|| depacketizer.poll(at(0))));
            }
            depacketizer.finish();
            restored.extend(std::iter::from_fn(|| depacketizer.poll(at(0))));
            restored.sort_by_key(|one| one.datagram);
            prop_assert!(restored.iter().all(|one| one.is_whole));
            let restored: Vec<_> = restored.into_iter().map(|one| one.data).collect();
            prop_assert_eq!(&restored, &datagrams);
            prop_assert_eq!(depacketizer.waiting(), 0);
        }
    }
}
