//! What things are called in the tables: all that is kept of a layout once its run is built.

use ontempo_foundation::Time;
use ontempo_scenario::{LaidLink, Layout};

/// Names of nodes, links, groups and flows, by place.
///
/// A layout also says how every link is made; with tens of thousands of them, that is worth
/// letting go of.
pub(crate) struct Names {
    pub(crate) nodes: Vec<Box<str>>,
    pub(crate) links: Vec<NamedLink>,
    pub(crate) groups: Vec<String>,
    pub(crate) flows: Vec<NamedFlow>,
}

/// A link and the nodes that it joins.
pub(crate) struct NamedLink {
    pub(crate) name: Box<str>,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// A flow is named by its group and its number there.
pub(crate) struct NamedFlow {
    pub(crate) group: u32,
    pub(crate) index: u32,
    pub(crate) start: Time,
}

impl From<Layout> for Names {
    fn from(layout: Layout) -> Self {
        let named = |laid: LaidLink| NamedLink {
            name: laid.name.into(),
            from: laid.from as u32,
            to: laid.to as u32,
        };
        // Not collected, which would keep the memory of the far larger links of the layout.
        let mut links = Vec::with_capacity(layout.links.len());
        links.extend(layout.links.into_iter().map(named));
        let flows = layout.flows.iter().map(|laid| NamedFlow {
            group: laid.group as u32,
            index: laid.index,
            start: laid.start,
        });
        Self {
            nodes: layout.nodes.into_iter().map(Into::into).collect(),
            links,
            flows: flows.collect(),
            groups: layout.groups,
        }
    }
}

impl Names {
    /// The group of a flow.
    pub(crate) fn group_of(&self, flow: usize) -> &str {
        &self.groups[self.flows[flow].group as usize]
    }
}
