//! Names for the tables: all that remains of a layout once its run is assembled.

use std::sync::Arc;

use ontempo_foundation::{Duration, Time};
use ontempo_network::Schedule;
use ontempo_scenario::{LaidFlow, LaidLink, Layout};

/// Names of nodes, links, groups and flows, by place.
///
/// A layout also describes how every link is built; with tens of thousands of links, freeing
/// it saves memory.
pub(crate) struct Names {
    pub(crate) nodes: Vec<Box<str>>,
    pub(crate) links: Vec<NamedLink>,
    /// Places of the links that change, and how.
    pub(crate) schedules: Vec<(usize, Arc<Schedule>)>,
    /// For each of them the flows that cross it, there or back, in ascending order.
    pub(crate) crossing: Vec<Vec<u32>>,
    pub(crate) groups: Vec<String>,
    /// For each group, the latencies of players for which its films are judged.
    pub(crate) latencies: Vec<Vec<Duration>>,
    pub(crate) flows: Vec<NamedFlow>,
}

/// A link and its two nodes.
pub(crate) struct NamedLink {
    pub(crate) name: Box<str>,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// A flow, identified by its group and its number there.
pub(crate) struct NamedFlow {
    pub(crate) group: u32,
    pub(crate) index: u32,
    pub(crate) start: Time,
    /// When it stops sending; [`Time::NEVER`] if not before the end.
    pub(crate) stop: Time,
}

impl From<Layout> for Names {
    fn from(layout: Layout) -> Self {
        let named = |laid: LaidLink| NamedLink {
            name: laid.name.into(),
            from: laid.from as u32,
            to: laid.to as u32,
        };
        let schedule = |(place, laid): (usize, &LaidLink)| Some((place, laid.schedule.clone()?));
        let schedules: Vec<_> = layout.links.iter().enumerate().filter_map(schedule).collect();
        let crossing = crossing(&schedules, &layout.flows);
        // Not `collect`, which would reuse the far larger allocation of the layout's links.
        let mut links = Vec::with_capacity(layout.links.len());
        links.extend(layout.links.into_iter().map(named));
        let flows = layout.flows.iter().map(|laid| NamedFlow {
            group: laid.group as u32,
            index: laid.index,
            start: laid.start,
            stop: laid.stop.unwrap_or(Time::NEVER),
        });
        Self {
            nodes: layout.nodes.into_iter().map(Into::into).collect(),
            links,
            schedules,
            crossing,
            flows: flows.collect(),
            latencies: vec![Vec::new(); layout.groups.len()],
            groups: layout.groups,
        }
    }
}

fn crossing(schedules: &[(usize, Arc<Schedule>)], flows: &[LaidFlow]) -> Vec<Vec<u32>> {
    let mut crossing = vec![Vec::new(); schedules.len()];
    if schedules.is_empty() {
        return crossing;
    }
    for (number, flow) in (0..).zip(flows) {
        for link in flow.forward.iter().chain(&flow.reverse) {
            // Schedules are in the order of their links.
            if let Ok(at) = schedules.binary_search_by_key(link, |(place, _)| *place)
                && crossing[at].last() != Some(&number)
            {
                crossing[at].push(number);
            }
        }
    }
    crossing
}

impl Names {
    /// The group of a flow.
    pub(crate) fn group_of(&self, flow: usize) -> &str {
        &self.groups[self.flows[flow].group as usize]
    }
}
