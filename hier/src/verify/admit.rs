//! Admission: the verified plans that an operator may use.
//!
//! A non-commutative operator gets only ordered plans. An operator whose result depends on the order of rounding gets
//! only plans with identical bits on all ranks, unless the caller asks for [`Consistency::PerRank`].

use super::Verified;
use crate::plan::{Order, Plan, PlanError, unknown};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The agreement that is required between the results of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = unknown::<Consistency>)]
pub enum Consistency {
    /// Identical bits on all ranks.
    #[default]
    Identical,
    /// Ranks may differ in rounding.
    PerRank,
}

/// The properties of a reduction operator that decide which plans it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpTraits {
    /// a ⊕ b = b ⊕ a.
    pub commutative: bool,
    /// The result does not depend on how operands are grouped: integers, min, max, bit operations.
    pub exact: bool,
}

/// Returns the plan if the operator may use it.
///
/// # Errors
/// [`PlanError::NotAdmitted`] with the plans that could be used instead.
pub fn admit(plan: Verified<Plan>, op: OpTraits, consistency: Consistency) -> Result<Verified<Plan>, PlanError> {
    check_operator(&plan.algorithm, plan.order, plan.consistent, op, consistency)?;
    Ok(plan)
}

/// Checks the operator against the verified properties of a plan, as [`admit`] does.
pub(crate) fn check_operator(
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
