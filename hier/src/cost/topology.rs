//! A tree of switches and machines: an order of ranks that is free of contention on a ring, and a check of any plan.
//!
//! Links are full-duplex; a round is free of contention if no link carries two messages in one direction. In depth-
//! first order of the machines (ranks of one machine together) a ring uses each directed link once, for every
//! root. Source: PY section 4.2.
//!
//! ```toml
//! [[switch]]
//! name = "top"
//!
//! [[switch]]
//! name = "left"
//! parent = "top"
//!
//! [[machine]]
//! name = "a"
//! switch = "left"
//! ranks = [0, 1]
//!
//! [[machine]]
//! name = "b"
//! switch = "top"
//! ranks = [2]
//! ```

use crate::plan::{Plan, PlanError};
use crate::schedule::bad;
use serde::Deserialize;
use std::collections::HashMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyFile {
    #[serde(default)]
    switch: Vec<SwitchEntry>,
    #[serde(default)]
    machine: Vec<MachineEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchEntry {
    name: String,
    parent: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineEntry {
    name: String,
    switch: String,
    ranks: Vec<usize>,
}

/// A tree of switches and machines. Every node but the root has one link, to its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    names: Vec<String>,
    parent: Vec<Option<usize>>,
    ranks: Vec<Vec<usize>>,
    machine_of: Vec<usize>,
}

/// The load of the links under a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contention {
    /// Most messages on one link in one direction in one round; 0 or 1 is free of contention.
    pub most_messages: usize,
    /// Its location: round, link (by the name of its lower end), true if towards the root.
    pub at: Option<(usize, String, bool)>,
    /// Sum over rounds of the largest number of blocks on a link.
    pub load_blocks: usize,
}

impl Topology {
    /// Reads a TOML description (see the module). Ranks must be 0, 1, … without gaps or repetition.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        let parse = |reason: String| PlanError::Parse { what: "topology", reason };
        let file: TopologyFile = toml::from_str(text).map_err(|e| parse(e.to_string()))?;
        let mut index = HashMap::new();
        let all = file.switch.iter().map(|s| &s.name).chain(file.machine.iter().map(|m| &m.name));
        for (i, name) in all.enumerate() {
            if index.insert(name.as_str(), i).is_some() {
                return Err(parse(format!("the name `{name}` is used twice")));
            }
        }
        let switch = |name: &String, of: &String| match index.get(name.as_str()) {
            Some(i) if *i < file.switch.len() => Ok(*i),
            _ => Err(parse(format!("`{of}` hangs on `{name}`, which is no switch of this file"))),
        };
        let mut names = Vec::new();
        let mut parent = Vec::new();
        let mut ranks = Vec::new();
        for entry in &file.switch {
            parent.push(entry.parent.as_ref().map(|p| switch(p, &entry.name)).transpose()?);
            names.push(entry.name.clone());
            ranks.push(Vec::new());
        }
        for entry in &file.machine {
            parent.push(Some(switch(&entry.switch, &entry.name)?));
            names.push(entry.name.clone());
            ranks.push(entry.ranks.clone());
        }
        let roots: Vec<&str> = (0..names.len()).filter(|i| parent[*i].is_none()).map(|i| names[i].as_str()).collect();
        if roots.len() != 1 {
            let found = if roots.is_empty() { "none".to_string() } else { roots.join(", ") };
            return Err(parse(format!("exactly one switch must have no parent; found {found}")));
        }
        let count = ranks.iter().map(Vec::len).sum();
        let mut machine_of = vec![usize::MAX; count];
        for (machine, its) in ranks.iter().enumerate() {
            for rank in its {
                match machine_of.get_mut(*rank) {
                    Some(place) if *place == usize::MAX => *place = machine,
                    _ => return Err(parse(format!("rank {rank}: expected each of 0..{count} exactly once"))),
                }
            }
        }
        let tree = Self { names, parent, ranks, machine_of };
        for node in 0..tree.names.len() {
            if tree.to_root(node).len() > tree.names.len() {
                return Err(parse(format!("`{}` is its own ancestor", tree.names[node])));
            }
        }
        Ok(tree)
    }

    /// One switch with machines of `ranks_per_machine` consecutive ranks; the last may have fewer.
    pub fn star(ranks: usize, ranks_per_machine: usize) -> Result<Self, PlanError> {
        Self::regular(ranks, ranks_per_machine, None)
    }

    /// A root over leaf switches of `machines_per_switch` machines of `ranks_per_machine` consecutive ranks; the last
    /// switch and the last machine may have fewer.
    pub fn tree(ranks: usize, ranks_per_machine: usize, machines_per_switch: usize) -> Result<Self, PlanError> {
        Self::regular(ranks, ranks_per_machine, Some(machines_per_switch))
    }

    fn regular(ranks: usize, per_machine: usize, per_switch: Option<usize>) -> Result<Self, PlanError> {
        if ranks == 0 || per_machine == 0 || per_switch == Some(0) {
            let reason = "expected at least one rank, one rank per machine and one machine per switch".to_string();
            return Err(PlanError::Parse { what: "topology", reason });
        }
        let machines = ranks.div_ceil(per_machine);
        let switches = per_switch.map_or(0, |n| machines.div_ceil(n));
        let mut tree =
            Self { names: vec!["root".into()], parent: vec![None], ranks: vec![Vec::new()], machine_of: Vec::new() };
        for switch in 0..switches {
            tree.names.push(format!("switch{switch}"));
            tree.parent.push(Some(0));
            tree.ranks.push(Vec::new());
        }
        for machine in 0..machines {
            let its = machine * per_machine..ranks.min((machine + 1) * per_machine);
            tree.names.push(format!("machine{machine}"));
            tree.parent.push(Some(per_switch.map_or(0, |n| 1 + machine / n)));
            tree.machine_of.extend(its.clone().map(|_| 1 + switches + machine));
            tree.ranks.push(its.collect());
        }
        Ok(tree)
    }

    /// Number of switches and machines.
    pub fn nodes(&self) -> usize {
        self.names.len()
    }

    /// The node of a rank's machine, below [`Self::nodes`].
    pub fn machine_of(&self, rank: usize) -> usize {
        self.machine_of[rank]
    }

    /// The node and its ancestors without the root; each stands for its link to its parent.
    pub fn path_to_root(&self, node: usize) -> Vec<usize> {
        let mut path = self.to_root(node);
        path.pop();
        path
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.machine_of.len()
    }

    /// The ranks machine by machine, depth first: the order in which a ring is free of contention.
    pub fn depth_first_order(&self) -> Vec<usize> {
        let root = self.parent.iter().position(Option::is_none);
        let mut order = Vec::with_capacity(self.ranks());
        let mut stack: Vec<usize> = root.into_iter().collect();
        while let Some(node) = stack.pop() {
            order.extend(&self.ranks[node]);
            stack.extend((0..self.names.len()).rev().filter(|child| self.parent[*child] == Some(node)));
        }
        order
    }

    /// The node and its ancestors; longer than the number of nodes if they form a circle.
    fn to_root(&self, node: usize) -> Vec<usize> {
        let mut path = vec![node];
        while let Some(up) = self.parent[path[path.len() - 1]].filter(|_| path.len() <= self.names.len()) {
            path.push(up);
        }
        path
    }

    /// Directed links between two machines: (lower end, towards the root).
    fn links(&self, from: usize, to: usize) -> Vec<(usize, bool)> {
        let (mut up, mut down) = (self.to_root(from), self.to_root(to));
        while let (Some(a), Some(b)) = (up.last(), down.last())
            && a == b
        {
            up.pop();
            down.pop();
        }
        up.into_iter().map(|n| (n, true)).chain(down.into_iter().map(|n| (n, false))).collect()
    }

    /// Counts what each link carries in each round of the plan. An error if the numbers of ranks differ.
    pub fn contention(&self, plan: &Plan) -> Result<Contention, PlanError> {
        if plan.ranks() != self.ranks() {
            let expected = format!("{} ranks, as in the plan", plan.ranks());
            return Err(bad(&plan.algorithm, "topology", format!("a tree of {} ranks", self.ranks()), expected));
        }
        let mut result = Contention { most_messages: 0, at: None, load_blocks: 0 };
        let messages = plan.messages()?;
        for round in messages.chunk_by(|a, b| a.round == b.round) {
            let mut loads: HashMap<(usize, bool), (usize, usize)> = HashMap::new();
            for m in round {
                for link in self.links(self.machine_of[m.from], self.machine_of[m.to]) {
                    let load = loads.entry(link).or_default();
                    *load = (load.0 + 1, load.1 + m.blocks.len());
                }
            }
            // the smallest link wins a tie, so that the answer does not depend on hashing
            let worst = loads.iter().max_by_key(|(link, load)| (load.0, std::cmp::Reverse(**link)));
            if let Some(((node, up), (count, _))) = worst
                && *count > result.most_messages
            {
                result.most_messages = *count;
                result.at = Some((round[0].round as usize, self.names[*node].clone(), *up));
            }
            result.load_blocks += loads.values().map(|load| load.1).max().unwrap_or(0);
        }
        Ok(result)
    }
}
