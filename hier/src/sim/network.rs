//! A tree of switches as a network: the links that a message crosses, and their capacity.

use super::call::bad;
use crate::cost::Topology;
use crate::plan::PlanError;

/// A tree of switches with machines as leaves; every link is full-duplex.
///
/// Ranks of one machine reach each other without a link. Other messages cross the links up to the lowest common
/// switch and down again.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    machine_of: Vec<usize>,
    /// Directed links from a machine to the root, nearest first: link 2i leads up from node i, 2i + 1 down to it.
    up: Vec<Vec<usize>>,
    links: usize,
    per_byte_s: f64,
}

impl Network {
    /// The tree with links that need `per_byte_s` seconds for a byte; 0 is a link without limit.
    pub fn new(tree: &Topology, per_byte_s: f64) -> Result<Self, PlanError> {
        if !(per_byte_s.is_finite() && per_byte_s >= 0.0) {
            return Err(bad("link", per_byte_s, "seconds per byte, finite and not negative"));
        }
        let up = (0..tree.nodes()).map(|node| tree.path_to_root(node)).collect();
        let machine_of = (0..tree.ranks()).map(|rank| tree.machine_of(rank)).collect();
        Ok(Self { machine_of, up, links: 2 * tree.nodes(), per_byte_s })
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.machine_of.len()
    }

    /// The machine of a rank.
    pub(super) fn machine(&self, rank: usize) -> usize {
        self.machine_of[rank]
    }

    /// Number of directed links.
    pub(super) fn links(&self) -> usize {
        self.links
    }

    /// Seconds per byte on a link.
    pub(super) fn per_byte_s(&self) -> f64 {
        self.per_byte_s
    }

    /// The directed links a message crosses.
    pub(super) fn path(&self, from: usize, to: usize, links: &mut Vec<usize>) {
        let (a, b) = (&self.up[self.machine_of[from]], &self.up[self.machine_of[to]]);
        let common = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
        links.extend(a[..a.len() - common].iter().map(|node| 2 * node));
        links.extend(b[..b.len() - common].iter().rev().map(|node| 2 * node + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_up_to_the_common_switch_and_down() {
        // switch 0 over switches 1 and 2; machines 3 and 4 under 1, 5 under 2, one rank each
        let tree = Topology::tree(3, 1, 2).unwrap();
        let network = Network::new(&tree, 1.0).unwrap();
        let path = |from, to| {
            let mut links = Vec::new();
            network.path(from, to, &mut links);
            links
        };
        assert_eq!(path(0, 1), [6, 9]);
        assert_eq!(path(0, 2), [6, 2, 5, 11]);
        assert_eq!(path(2, 0), [10, 4, 3, 7]);
        let together = Network::new(&Topology::star(4, 2).unwrap(), 1.0).unwrap();
        let mut links = Vec::new();
        together.path(0, 1, &mut links);
        assert!(links.is_empty());
        assert!(Network::new(&tree, -1.0).is_err());
    }
}
