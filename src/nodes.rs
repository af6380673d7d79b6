//! Virtual nodes: contiguous ranks of one machine that are treated as if each group had a machine of its own.

use crate::Error;
use std::fmt;
use std::str::FromStr;

/// The number of ranks on each virtual node, as users write it: `2` for two each (the last node may have fewer), or `5,3,1` for every
/// node.
///
/// ```
/// let two_each: earlybird::RanksPerNode = "2".parse()?;
/// assert_eq!(two_each.sizes(5)?, [2, 2, 1]);
/// # Ok::<(), earlybird::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RanksPerNode(Vec<usize>);

impl RanksPerNode {
    /// `ranks` ranks on `nodes` nodes: the first `ranks % nodes` nodes get one rank more.
    ///
    /// # Errors
    /// [`Error::Usage`] for no nodes, or more nodes than ranks.
    pub fn on_nodes(ranks: usize, nodes: usize) -> Result<Self, Error> {
        if nodes == 0 || nodes > ranks {
            return Err(Error::usage(format!("{ranks} ranks cannot be on {nodes} nodes; use 1 to {ranks} nodes")));
        }
        Ok(RanksPerNode((0..nodes).map(|node| ranks / nodes + usize::from(node < ranks % nodes)).collect()))
    }

    /// The ranks of every node of a job of `ranks` ranks.
    ///
    /// # Errors
    /// [`Error::Usage`] for a list that has another number of ranks.
    pub fn sizes(&self, ranks: usize) -> Result<Vec<usize>, Error> {
        match self.0[..] {
            [each] => Ok((0..ranks.div_ceil(each)).map(|node| each.min(ranks - node * each)).collect()),
            ref list if list.iter().sum::<usize>() == ranks => Ok(list.to_vec()),
            _ => Err(Error::usage(format!("nodes of {self} ranks were given for {ranks} ranks; the sum must be that"))),
        }
    }

    /// The node of rank `rank` of a job of `ranks` ranks.
    ///
    /// # Errors
    /// As [`RanksPerNode::sizes`].
    pub fn node_of(&self, rank: usize, ranks: usize) -> Result<usize, Error> {
        let mut end = 0;
        let ends = self.sizes(ranks)?.into_iter().map(|size| {
            end += size;
            end
        });
        Ok(ends.filter(|end| *end <= rank).count())
    }
}

impl fmt::Display for RanksPerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&sizes.join(","))
    }
}

impl FromStr for RanksPerNode {
    type Err = Error;

    /// [`Error::Usage`] for anything but whole numbers from 1 with commas between.
    fn from_str(given: &str) -> Result<Self, Error> {
        let number = |text: &str| text.parse().ok().filter(|n| (1..=1 << 20).contains(n));
        match given.split(',').map(number).collect() {
            Some(sizes) => Ok(RanksPerNode(sizes)),
            None => Err(Error::usage(format!(
                "{given:?} is no number of ranks per node; give one for all nodes (2), or one for each (5,3,1)"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;

    #[test]
    fn nodes_are_contiguous_and_the_first_get_more() {
        let sizes = |text: &str, ranks| text.parse::<RanksPerNode>().unwrap().sizes(ranks);
        assert_eq!(sizes("2", 5), Ok(vec![2, 2, 1]));
        assert_eq!(sizes("1", 3), Ok(vec![1, 1, 1]));
        assert_eq!(sizes("8", 3), Ok(vec![3]));
        assert_eq!(sizes("5,3,1", 9), Ok(vec![5, 3, 1]));
        assert_eq!(RanksPerNode::on_nodes(8, 3).unwrap().to_string(), "3,3,2");
        assert!(usage(sizes("5,3,1", 8)).contains("for 8 ranks"));
        assert!(usage(RanksPerNode::on_nodes(2, 3)).contains("1 to 2 nodes"));
        for given in ["", "0", "2,0", "2,", "x", "-1", "1.5", "99999999999"] {
            assert!(usage(given.parse::<RanksPerNode>()).contains("ranks per node"), "{given}");
        }
    }
}
