//! The time that a cell takes in addition to its windows.

use super::case::Case;
use super::pushed;
use super::rule_set::RuleSet;
use crate::model::Plan;
use crate::workloads::switches::Product;
use generator::ndr;
use results::Form;
use units::Span;

/// Estimates the time of a cell without its windows. The rules are loaded once, and once more for
/// the pushed ports of the full form.
pub(super) fn of_cell(case: &Case, product: Option<Product>, plan: &Plan) -> Span {
    let cpus = host::online_cpus().len();
    if case.least_cpus() > cpus {
        return Span::ZERO;
    }
    let warm = ready(case, product) + plan.omit.max(SHORTEST_WARM_UP);
    match plan.form {
        Form::Full if case.pmds < cpus => {
            let search = ndr::usual_time(&[pushed::goal(case.search)]);
            warm * 2 + search + case.load * 11 / 10 + AROUND_GENERATORS
        }
        _ => warm,
    }
}

/// Estimates the time to start a switch and load its rules.
fn ready(case: &Case, product: Option<Product>) -> Span {
    let rules = match case.set {
        RuleSet::Mac | RuleSet::Nat => u64::from(case.rules),
        RuleSet::Base | RuleSet::Raw => 1,
    };
    match product {
        Some(Product::OvsDpdk(_)) => Span::from_millis(2500) + Span::from_micros(150) * rules,
        _ => Span::from_millis(300) + Span::from_micros(6) * rules,
    }
}

/// Minimum time of a warm-up: the lab sees a switch forward after half a second at the earliest.
const SHORTEST_WARM_UP: Span = Span::from_millis(600);
/// Time around the runs of three generators: their start, the connection of their ports and their
/// end.
const AROUND_GENERATORS: Span = Span::from_secs(6);

#[cfg(test)]
mod tests {
    use super::super::case::PushedPorts;
    use super::*;
    use crate::workloads::switches::Tuning;
    use generator::Addressing;

    fn time(form: Form, pmds: usize, product: Product) -> Span {
        let case = Case {
            set: RuleSet::Nat,
            rules: 65_536,
            pmds,
            order: Addressing::Lockstep,
            ports: PushedPorts::VhostUser,
            search: Span::from_secs(5),
            load: Span::from_secs(10),
        };
        let plan = Plan {
            form,
            duration: Span::from_secs(1),
            omit: Span::from_secs(3),
            repeats: 6,
            cells: Vec::new(),
            steps: Vec::new(),
        };
        of_cell(&case, Some(product), &plan)
    }

    #[test]
    fn only_the_full_form_plans_time_for_search_and_fixed_load() {
        let cpus = host::online_cpus().len();
        for product in [Product::WeirSwitch, Product::OvsDpdk(Tuning::Stock)] {
            let quick = time(Form::Quick, 1, product);
            let full = time(Form::Full, 1, product);
            assert!(quick > Span::from_secs(3), "{quick}");
            // The generator needs a CPU of its own.
            match cpus {
                1 => assert_eq!(full, quick),
                _ => assert!(full > quick + Span::from_secs(20), "{quick} {full}"),
            }
            assert_eq!(time(Form::Full, cpus, product), time(Form::Quick, cpus, product));
            assert_eq!(time(Form::Full, cpus + 1, product), Span::ZERO);
        }
    }
}
