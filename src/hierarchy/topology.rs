//! The placement of ranks on nodes: pure arithmetic on the list of every node's ranks, the same on every rank.

use crate::Error;

/// The ranks of every node. The first of a node is its leader, which exchanges with the leaders of other nodes; of large
/// messages the first few exchange a part each, its *endpoints*.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    members: Vec<Vec<usize>>,
    /// The node of each rank, and its number there.
    places: Vec<(usize, usize)>,
    me: usize,
    /// Endpoints that are wanted, and those that each node has.
    wanted: usize,
    endpoints: usize,
}

impl Topology {
    /// Nodes of these ranks, which name every rank once; `me` is this one.
    ///
    /// # Errors
    /// [`Error::Usage`] when they do not.
    pub(crate) fn new(members: Vec<Vec<usize>>, me: usize) -> Result<Self, Error> {
        let ranks = members.iter().map(Vec::len).sum();
        let mut places = vec![None; ranks];
        for (node, of_node) in members.iter().enumerate() {
            for (local, rank) in of_node.iter().enumerate() {
                if let Some(place) = places.get_mut(*rank) {
                    *place = Some((node, local));
                }
            }
        }
        let places: Option<Vec<_>> = places.into_iter().collect();
        match places.filter(|places| me < places.len() && members.iter().all(|node| !node.is_empty())) {
            Some(places) => Ok(Topology { members, places, me, wanted: 1, endpoints: 1 }),
            None => Err(Error::usage(format!("nodes of ranks {members:?} do not name each of {ranks} ranks once"))),
        }
    }

    /// Contiguous ranks, so many on each node.
    pub(crate) fn contiguous(sizes: &[usize], me: usize) -> Result<Self, Error> {
        let mut next = 0;
        let members = sizes.iter().map(|size| {
            next += size;
            (next - size..next).collect()
        });
        Self::new(members.collect(), me)
    }

    /// The same nodes, as another rank sees them.
    pub(crate) fn seen_by(&self, rank: usize) -> Self {
        Topology { me: rank, ..self.clone() }
    }

    pub(crate) fn size(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn rank(&self) -> usize {
        self.me
    }

    pub(crate) fn nodes(&self) -> usize {
        self.members.len()
    }

    /// Node of a rank, and its number there.
    pub(crate) fn place(&self, rank: usize) -> (usize, usize) {
        self.places[rank]
    }

    /// This rank's node.
    pub(crate) fn node(&self) -> usize {
        self.places[self.me].0
    }

    /// This rank's number on its node.
    pub(crate) fn local(&self) -> usize {
        self.places[self.me].1
    }

    pub(crate) fn leads(&self) -> bool {
        self.local() == 0
    }

    /// Returns whether this rank is the only one of its node.
    pub(crate) fn is_alone(&self) -> bool {
        self.here().len() == 1
    }

    /// The ranks of a node, in the order of their numbers there.
    pub(crate) fn members(&self, node: usize) -> &[usize] {
        &self.members[node]
    }

    /// The ranks of this node.
    pub(crate) fn here(&self) -> &[usize] {
        &self.members[self.node()]
    }

    /// The same placement with so many endpoints on each node, or as many as the smallest node has ranks.
    pub(crate) fn with_endpoints(self, wanted: usize) -> Self {
        let most = self.members.iter().map(Vec::len).min().unwrap_or(1);
        Topology { wanted, endpoints: wanted.clamp(1, most), ..self }
    }

    /// The argument of [`Topology::with_endpoints`], for groups of these ranks, whose nodes may have more ranks.
    pub(crate) fn wanted_endpoints(&self) -> usize {
        self.wanted
    }

    pub(crate) fn endpoints(&self) -> usize {
        self.endpoints
    }

    /// The ranks that this one exchanges with, by node, its own among them: an endpoint with those of its number. The
    /// leaders for a rank that exchanges nothing.
    pub(crate) fn peers(&self) -> Vec<usize> {
        let number = if self.is_endpoint() { self.local() } else { 0 };
        self.members.iter().map(|of_node| of_node[number]).collect()
    }

    pub(crate) fn is_endpoint(&self) -> bool {
        self.local() < self.endpoints
    }

    /// Returns whether the ranks of the first node, the second and so on, are the ranks of the job in order.
    pub(crate) fn is_in_order(&self) -> bool {
        self.members.iter().flatten().copied().eq(0..self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;

    #[test]
    fn places_lead_back() {
        let uneven = Topology::contiguous(&[5, 3, 1], 6).unwrap();
        assert_eq!((uneven.size(), uneven.nodes(), uneven.place(6), uneven.peers()), (9, 3, (1, 1), vec![0, 5, 8]));
        assert!(uneven.is_in_order() && !uneven.leads());
        let mixed = Topology::new(vec![vec![1, 3], vec![0, 2]], 1).unwrap();
        assert!(!mixed.is_in_order() && mixed.leads() && mixed.here() == [1, 3] && mixed.members(1) == [0, 2]);
    }

    #[test]
    fn endpoints_meet_those_of_their_number() {
        let at = |me, wanted| Topology::contiguous(&[3, 2], me).unwrap().with_endpoints(wanted);
        for (me, peers, is_endpoint) in [(0, [0, 3], true), (1, [1, 4], true), (2, [0, 3], false), (4, [1, 4], true)] {
            assert_eq!((at(me, 2).peers(), at(me, 2).is_endpoint()), (peers.to_vec(), is_endpoint), "{me}");
        }
        assert_eq!((at(0, 9).endpoints(), at(0, 0).endpoints()), (2, 1), "the smallest node has two ranks");
        assert!(at(1, 2).is_endpoint() && !at(1, 2).leads() && !at(1, 1).is_endpoint());
    }

    #[test]
    fn what_is_no_partition_is_refused() {
        for members in [vec![vec![0], vec![0]], vec![vec![0, 2]], vec![vec![0], vec![]], vec![vec![1, 2], vec![3]]] {
            assert!(usage(Topology::new(members, 0)).contains("each of"));
        }
    }
}
