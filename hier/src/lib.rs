//! The inter-node layer of earlybird: schedules as verified data.
#![forbid(unsafe_code)]
