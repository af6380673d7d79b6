//! The contract with the caller: which verified plans an operator may use.
//!
//! A non-commutative operator gets only ordered plans. An operator whose result depends on the order of rounding gets
//! only plans with identical bits on all ranks, unless the caller chose [`Consistency::PerRank`].

use crate::error::PlanError;
use crate::plan::{Order, Plan};
use crate::verify::Verified;
use std::str::FromStr;

/// Whether all ranks must get identical bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// Identical bits on all ranks.
    #[default]
    Identical,
    /// Ranks may differ in rounding.
    PerRank,
}

impl FromStr for Consistency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "identical" => Ok(Consistency::Identical),
            "per-rank" => Ok(Consistency::PerRank),
            _ => Err(format!("`{text}`: expected identical or per-rank")),
        }
    }
}

/// What matters about an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpTraits {
    /// a ⊕ b = b ⊕ a.
    pub commutative: bool,
    /// The result does not depend on how operands are grouped: integers, min, max, bit operations.
    pub exact: bool,
}

/// Passes the plan on if the operator may use it.
pub fn admit(plan: Verified<Plan>, op: OpTraits, consistency: Consistency) -> Result<Verified<Plan>, PlanError> {
    check(&plan.algorithm, plan.order, plan.consistent, op, consistency)?;
    Ok(plan)
}

/// As [`admit`], of a plan's verified properties.
pub(crate) fn check(
    algorithm: &str,
    order: Order,
    consistent: bool,
    op: OpTraits,
    consistency: Consistency,
) -> Result<(), PlanError> {
    let refuse = |reason: String, instead: &str| {
        Err(PlanError::NotAdmitted { algorithm: algorithm.to_string(), reason, instead: instead.to_string() })
    };
    if !op.commutative && order != Order::Ordered {
        let reason = format!("the operator does not commute and the plan's operand order is {order}");
        return refuse(
            reason,
            "ordered plans are recursive-doubling, halving-doubling, elimination-3-2, elimination-2-1, odd-ring, \
             radix, direct, rsg, smp-binomial, smp-butterfly, and chain, pre-reduced-ring or binomial in rank order",
        );
    }
    if !op.exact && !consistent && consistency == Consistency::Identical {
        return refuse(
            "the operator rounds and ranks would get results that differ in their last bits".to_string(),
            "choose consistency per-rank, or a plan with identical bits: butterfly with r = 0 or with r over factors \
             that are powers of two, or any other schedule but census and prefix",
        );
    }
    Ok(())
}
