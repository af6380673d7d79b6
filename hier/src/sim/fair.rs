//! Max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, section 6.5).
//!
//! All rates grow together until a resource is full; the flows that cross it keep their rates and the others grow on. A flow
//! uses a resource for `weight` seconds per byte, and a resource has one second per second to give.

/// A use of a resource.
pub(super) type ResourceUse = (usize, f64);

/// Scratch memory of the computation, reused between calls.
#[derive(Debug, Default)]
pub(super) struct FairShares {
    /// Per resource: its remaining rate, and the weights of the flows whose rate still grows.
    left: Vec<(f64, f64)>,
    touched: Vec<usize>,
    growing: Vec<usize>,
}

impl FairShares {
    /// Sets a rate in bytes per second for each flow; infinite if it uses nothing. Resources are below `resources`.
    pub(super) fn rates(&mut self, resources: usize, flows: &[&[ResourceUse]], rates: &mut Vec<f64>) {
        rates.clear();
        rates.resize(flows.len(), f64::INFINITY);
        self.left.resize(resources.max(self.left.len()), (1.0, 0.0));
        self.growing.clear();
        for (i, uses) in flows.iter().enumerate() {
            let mut needs = uses.iter().filter(|(_, weight)| *weight > 0.0).peekable();
            if needs.peek().is_some() {
                self.growing.push(i);
            }
            for (resource, weight) in needs {
                if self.left[*resource].1 == 0.0 {
                    self.touched.push(*resource);
                }
                self.left[*resource].1 += weight;
            }
        }
        while !self.growing.is_empty() {
            let rate = |left: &[(f64, f64)], uses: &[ResourceUse]| {
                let one = |&(resource, weight): &ResourceUse| {
                    let (room, weights) = left[resource];
                    if weight > 0.0 { room / weights } else { f64::INFINITY }
                };
                uses.iter().map(one).fold(f64::INFINITY, f64::min)
            };
            let least = self.growing.iter().map(|i| rate(&self.left, flows[*i])).fold(f64::INFINITY, f64::min);
            // what differs by rounding only is full at the same time
            let full = least * (1.0 + 1e-12);
            let (done, growing): (Vec<usize>, Vec<usize>) =
                self.growing.iter().partition(|i| rate(&self.left, flows[**i]) <= full);
            for i in done {
                rates[i] = least;
                for (resource, weight) in flows[i].iter().filter(|(_, weight)| *weight > 0.0) {
                    let (room, weights) = &mut self.left[*resource];
                    *room = (*room - least * weight).max(0.0);
                    *weights = (*weights - weight).max(f64::MIN_POSITIVE);
                }
            }
            self.growing = growing;
        }
        for resource in self.touched.drain(..) {
            self.left[resource] = (1.0, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(flows: &[&[ResourceUse]]) -> Vec<f64> {
        let (mut fair, mut found) = (FairShares::default(), Vec::new());
        for _ in 0..2 {
            // the second time shows that nothing is left over from the first
            fair.rates(8, flows, &mut found);
        }
        found
    }

    #[test]
    fn a_shared_resource_is_halved_and_the_rest_goes_to_the_others() {
        assert_eq!(rates(&[&[(0, 1.0)], &[(0, 1.0)]]), [0.5, 0.5]);
        // flows 0 and 1 share resource 0; flow 1 and 2 share resource 1, which has room for two
        assert_eq!(rates(&[&[(0, 1.0)], &[(0, 1.0), (1, 0.5)], &[(1, 0.5)]]), [0.5, 0.5, 1.5]);
        // three on one, of which one could not use more elsewhere
        assert_eq!(rates(&[&[(0, 1.0), (2, 4.0)], &[(0, 1.0)], &[(0, 1.0)]]), [0.25, 0.375, 0.375]);
    }

    #[test]
    fn weights_are_seconds_per_byte() {
        assert_eq!(rates(&[&[(0, 0.25)]]), [4.0]);
        assert_eq!(rates(&[&[(0, 3.0)], &[(0, 1.0)]]), [0.25, 0.25]);
        assert_eq!(rates(&[&[(0, 0.0)], &[]]), [f64::INFINITY; 2]);
    }

    #[test]
    fn no_resource_is_overdrawn_and_every_flow_has_a_full_one() {
        let mut state = 1u64;
        let mut draw = |n: u64| {
            state = crate::sim::mix(state);
            state % n
        };
        for _ in 0..200 {
            let flows: Vec<Vec<ResourceUse>> =
                (0..12).map(|_| (0..3).map(|k| (8 * k + draw(8) as usize, (1 + draw(4)) as f64)).collect()).collect();
            let all: Vec<&[ResourceUse]> = flows.iter().map(Vec::as_slice).collect();
            let (mut fair, mut found) = (FairShares::default(), Vec::new());
            fair.rates(24, &all, &mut found);
            let load = |resource: usize| -> f64 {
                let on = |uses: &Vec<ResourceUse>| uses.iter().filter(|u| u.0 == resource).map(|u| u.1).sum::<f64>();
                flows.iter().zip(&found).map(|(uses, rate)| on(uses) * rate).sum()
            };
            assert!((0..24).all(|resource| load(resource) <= 1.0 + 1e-9));
            for (uses, rate) in flows.iter().zip(&found) {
                let fastest = |r: usize| {
                    let on = flows.iter().zip(&found).filter(|(u, _)| u.iter().any(|u| u.0 == r));
                    on.map(|(_, rate)| *rate).fold(0.0, f64::max)
                };
                assert!(uses.iter().any(|u| load(u.0) > 1.0 - 1e-9 && *rate >= fastest(u.0) - 1e-9), "max-min");
            }
        }
    }
}
