//! Compares the final state with the definition of the collective, and classifies operand order and bit-consistency.

use super::symbol::SymbolicState;
use super::term::{TermId, UNDEFINED};
use crate::plan::{Collective, Order, Plan, Violation};

/// The properties of the final state.
pub(super) struct Findings {
    pub(super) order: Order,
    pub(super) consistent: bool,
}

pub(super) fn check(plan: &Plan, machine: &SymbolicState<'_>) -> Result<Findings, Violation> {
    let ranks = plan.ranks();
    let mut order = Order::Ordered;
    let mut inconsistent = None;
    for block in 0..plan.blocks {
        let mut first_shape: Option<(usize, u32)> = None;
        for rank in 0..ranks {
            let promised = match plan.collective {
                Collective::Allreduce | Collective::Broadcast | Collective::Allgather | Collective::Barrier => true,
                Collective::Reduce => rank == plan.root,
                Collective::ReduceScatter => plan.own_blocks(rank).contains(&block),
            };
            if !promised {
                continue;
            }
            let id = machine.value(rank, plan.result, block);
            expected(plan, machine, rank, block, id)?;
            let found = match (plan.collective, machine.terms().interval(id)) {
                (Collective::Broadcast | Collective::Allgather, _) => Order::Ordered,
                (_, Some((0, _))) => Order::Ordered,
                (_, Some(_)) => Order::Rotated,
                (_, None) => Order::Commutative,
            };
            if found > plan.order {
                return Err(Violation::Order { rank, block, found, claimed: plan.order });
            }
            order = order.max(found);
            let shape = machine.terms().shape(id);
            match first_shape {
                None => first_shape = Some((rank, shape)),
                Some((first, its)) if its != shape && inconsistent.is_none() => {
                    inconsistent = Some((block, first, rank));
                }
                Some(_) => {}
            }
        }
    }
    // a barrier carries no value whose bits could differ
    if plan.collective == Collective::Barrier {
        inconsistent = None;
    }
    match inconsistent {
        Some((block, first, second)) if plan.consistent => Err(Violation::Inconsistent { block, first, second }),
        found => Ok(Findings { order, consistent: found.is_none() }),
    }
}

fn expected(plan: &Plan, machine: &SymbolicState<'_>, rank: usize, block: usize, id: TermId) -> Result<(), Violation> {
    let wrong = |expected: String| {
        let found = match id {
            UNDEFINED => "nothing".to_string(),
            id => name_set(&machine.terms().contributors(id)),
        };
        Err(Violation::WrongResult { rank, block, found, expected })
    };
    let source = match plan.collective {
        Collective::Broadcast => Some(plan.root),
        Collective::Allgather => Some(block / (plan.blocks / plan.ranks())),
        Collective::Allreduce | Collective::Reduce | Collective::ReduceScatter | Collective::Barrier => None,
    };
    match source {
        Some(source) if id != source as TermId => wrong(format!("the input of rank {source}")),
        None if id == UNDEFINED || machine.terms().count(id) != plan.ranks() => {
            wrong(format!("the inputs of all {} ranks", plan.ranks()))
        }
        _ => Ok(()),
    }
}

fn name_set(ranks: &[usize]) -> String {
    let shown: Vec<String> = ranks.iter().take(8).map(usize::to_string).collect();
    let more = if ranks.len() > 8 { format!(" and {} more", ranks.len() - 8) } else { String::new() };
    format!("the inputs of ranks {}{more}", shown.join(", "))
}
