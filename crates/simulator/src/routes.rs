//! Routes: the links that packets pass, and what is known of them before the run.

use ontempo_elements::Element;
use ontempo_network::Link;

use crate::watch::Watch;

/// A step of a route: the next link, or the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step(pub(crate) u32);

impl Step {
    pub(crate) const ARRIVED: Self = Self(u32::MAX);
    /// Only the previous link of the route (of its first link: its host) feeds this one, so that
    /// packets can be offered to it ahead of time, in the order in which they will arrive.
    pub(crate) const AHEAD: u32 = 1 << 31;
    /// The link is watched.
    pub(crate) const WATCHED: u32 = 1 << 30;
    /// The link is a scheduled one.
    pub(crate) const SCHEDULED: u32 = 1 << 29;

    pub(crate) fn link(self) -> usize {
        (self.0 & !(Self::AHEAD | Self::WATCHED | Self::SCHEDULED)) as usize
    }

    pub(crate) fn is_scheduled(self) -> bool {
        self.0 & Self::SCHEDULED != 0
    }

    /// Neither watched nor scheduled.
    pub(crate) fn is_simple(self) -> bool {
        self.0 & (Self::WATCHED | Self::SCHEDULED) == 0
    }

    pub(crate) fn is_watched(self) -> bool {
        self.0 & Self::WATCHED != 0
    }

    /// True at the end of a route, too.
    pub(crate) fn may_be_offered_ahead(self) -> bool {
        self.0 & Self::AHEAD != 0
    }
}

/// What a packet does at a step of its route, known before the run: it is offered to one link or to two,
/// and then it waits for an event or has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    /// The link, [`Self::ENDS`] and [`Self::BY_STEPS`]; or [`Self::ARRIVED`].
    pub(crate) first: u32,
    /// The link behind it that accepts packets ahead of time, or [`Self::NONE`].
    pub(crate) second: u32,
}

impl Hop {
    pub(crate) const ARRIVED: u32 = u32::MAX;
    pub(crate) const NONE: u32 = u32::MAX;
    /// No link of the route is left behind these.
    pub(crate) const ENDS: u32 = 1 << 31;
    /// A link is watched, scheduled or not plain: the way is taken step by step.
    pub(crate) const BY_STEPS: u32 = 1 << 30;

    /// The hops of all routes, one for each step.
    pub(crate) fn all(steps: &[Step], links: &[Link]) -> Vec<Self> {
        let at = |place: usize| {
            let step = steps[place];
            if step.0 == Step::ARRIVED.0 {
                return Self { first: Self::ARRIVED, second: Self::NONE };
            }
            let is_plain = |step: Step| step.is_simple() && links[step.link()].is_plain();
            let by_steps = |is_plain: bool| if is_plain { 0 } else { Self::BY_STEPS };
            let ends = |place: usize| {
                if steps[place].0 == Step::ARRIVED.0 { Self::ENDS } else { 0 }
            };
            let (first, next) = (step.link() as u32, steps[place + 1]);
            if next.0 == Step::ARRIVED.0 || !next.may_be_offered_ahead() {
                let first = first | ends(place + 1) | by_steps(is_plain(step));
                return Self { first, second: Self::NONE };
            }
            let is_plain = is_plain(step) && is_plain(next);
            // Behind a link ahead of its time, the next has an event, or the route ends.
            let first = first | ends(place + 2) | by_steps(is_plain);
            Self { first, second: next.link() as u32 }
        };
        (0..steps.len()).map(at).collect()
    }

    #[inline]
    pub(crate) fn has_arrived(self) -> bool {
        self.first == Self::ARRIVED
    }
}

/// True for a link that only one other link feeds, or, with `hosts_delay`, only one host, if
/// nothing overtakes or is copied on the way and the link is not watched. A scheduled link needs actual
/// arrivals: it is never offered ahead. Nor is a link with extras: the busy time of one that changes
/// could not be computed back.
pub(crate) fn links_fed_by_one(
    links: &[Element],
    routes: &[&[usize]],
    watches: &[Option<Box<Watch>>],
    hosts_delay: bool,
) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum Feeder {
        /// Of the route of this place.
        Host(usize),
        Link(usize),
    }
    let mut feeders: Vec<Option<Feeder>> = vec![None; links.len()];
    let mut several = vec![false; links.len()];
    for (place, route) in routes.iter().enumerate() {
        let mut before = Feeder::Host(place);
        for link in *route {
            several[*link] |= feeders[*link].is_some_and(|feeder| feeder != before);
            feeders[*link] = Some(before);
            before = Feeder::Link(*link);
        }
    }
    let ordered = |feeder: &Feeder| match feeder {
        Feeder::Host(_) => hosts_delay,
        // A copy is an event of its own.
        Feeder::Link(link) => !links[*link].reorders() && !links[*link].harms(),
    };
    feeders
        .iter()
        .enumerate()
        .map(|(link, feeder)| {
            let quiet = watches[link].is_none() && links[link].may_be_offered_ahead();
            !several[link] && quiet && feeder.as_ref().is_some_and(ordered)
        })
        .collect()
}
