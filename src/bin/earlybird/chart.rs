//! Curves as SVG: those that `simulate` computes and `bench` and `trace` measure.

use earlybird::Error;
use itertools::Itertools;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

/// Points of named curves, and what they are drawn over.
pub struct Chart {
    pub title: String,
    /// x is a number of bytes and its axis logarithmic.
    pub bytes: bool,
    /// Points are not joined.
    pub dots: bool,
    pub x_name: &'static str,
    pub y_name: &'static str,
    /// Curve, x, y.
    pub points: Vec<(String, f64, f64)>,
}

const SIZE: (u32, u32) = (1240, 640);
/// Colours that stay apart for most eyes (Okabe and Ito), then darker again.
const COLOURS: [u32; 12] = [
    0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0x56b4e9, 0xe69f00, 0x3c3c3c, 0x7850a0, 0x961e1e, 0x6e8214, 0x003c6e,
    0xf08c82,
];

pub type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Failure = Box<dyn std::error::Error>;
type Plot<'a, 'b, X, Y> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<<X as AsRangedCoord>::CoordDescType, <Y as AsRangedCoord>::CoordDescType>,
>;

/// An axis of plain numbers.
pub trait PlainAxis: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>> {}
impl<A> PlainAxis for A where A: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>
{}

/// Curves on a picture of their own.
///
/// # Errors
/// [`Error::System`] if there is nothing to draw.
pub fn svg(chart: &Chart) -> Result<String, Error> {
    picture(SIZE, |root| draw(root, chart))
}

/// A picture.
///
/// # Errors
/// [`Error::System`] with the failure of `draw`.
pub fn picture(size: (u32, u32), draw: impl FnOnce(&Drawing) -> Result<(), Failure>) -> Result<String, Error> {
    let mut svg = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(Failure::from).and_then(|()| draw(&root)).and_then(|()| Ok(root.present()?))
    };
    drawn.map(|()| svg).map_err(|error| Error::system("draw the picture", error))
}

/// Curves and, beside them, their names. Times have a logarithmic axis, or an even one if they lie close together.
pub fn draw(area: &Drawing, chart: &Chart) -> Result<(), Failure> {
    let (area, names) = area.split_horizontally(74.percent_width());
    for (i, name) in series(chart).enumerate() {
        let y = 60 + 24 * i as i32;
        names.draw(&PathElement::new(vec![(4, y), (32, y)], style(i)))?;
        names.draw(&Text::new(name, (40, y - 7), ("sans-serif", 14)))?;
    }
    // a vector of no bytes stands at half a byte
    let x = |point: &(String, f64, f64)| if chart.bytes { point.1.max(0.5) } else { point.1 };
    let ends = |values: &mut dyn Iterator<Item = f64>| values.minmax_by(f64::total_cmp).into_option();
    let (low, high) = ends(&mut chart.points.iter().map(|p| p.2).filter(|y| *y > 0.0)).ok_or("no time is above 0")?;
    let (first, last) = ends(&mut chart.points.iter().map(x)).ok_or("there are no points")?;
    let room = ((last - first) * 0.02).max(0.1);
    let bytes = (first * 0.8..last * 1.25).log_scale().base(2.0);
    let (even, wide) = (low * 0.9..high * 1.05, (low * 0.8..high * 1.25).log_scale());
    match (chart.bytes, high / low > 10.0) {
        (true, true) => curves(&area, chart, x, bytes, wide),
        (true, false) => curves(&area, chart, x, bytes, even),
        (false, true) => curves(&area, chart, x, first - room..last + room, wide),
        (false, false) => curves(&area, chart, x, first - room..last + room, even),
    }
}

fn curves<X: PlainAxis, Y: PlainAxis>(
    area: &Drawing,
    chart: &Chart,
    x_of: impl Fn(&(String, f64, f64)) -> f64,
    x: X,
    y: Y,
) -> Result<(), Failure> {
    let mut drawn = plot(area, &chart.title, x, y)?;
    drawn
        .configure_mesh()
        .x_desc(chart.x_name)
        .y_desc(chart.y_name)
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_labels(14)
        .x_label_formatter(&|x| if chart.bytes { in_bytes(*x) } else { plain(*x) })
        .y_label_formatter(&|y| plain(*y))
        .label_style(("sans-serif", 13))
        .draw()?;
    for (i, name) in series(chart).enumerate() {
        let of_curve = chart.points.iter().filter(|(series, _, y)| series == name && *y > 0.0);
        let points: Vec<(f64, f64)> = of_curve.map(|point| (x_of(point), point.2)).collect();
        let size = if points.len() > 40 { 2 } else { 3 };
        drawn.draw_series(points.iter().map(|&at| Circle::new(at, size, style(i).color.filled())))?;
        if !chart.dots {
            drawn.draw_series(std::iter::once(PathElement::new(points, style(i))))?;
        }
    }
    Ok(())
}

/// A plot with room for the labels of its axes.
pub fn plot<'a, 'b, X: PlainAxis, Y: PlainAxis>(
    area: &'a Drawing<'b>,
    title: &str,
    x: X,
    y: Y,
) -> Result<Plot<'a, 'b, X, Y>, Failure> {
    let mut plot = ChartBuilder::on(area);
    plot.caption(title, ("sans-serif", 18)).margin(12).x_label_area_size(40).y_label_area_size(80);
    Ok(plot.build_cartesian_2d(x, y)?)
}

/// Names of the curves, in the order of their first points.
fn series(chart: &Chart) -> impl Iterator<Item = &str> {
    chart.points.iter().map(|(series, ..)| series.as_str()).unique()
}

/// Later curves are thinner, so that one that lies on another is seen.
fn style(curve: usize) -> ShapeStyle {
    let [_, red, green, blue] = COLOURS[curve % COLOURS.len()].to_be_bytes();
    RGBColor(red, green, blue).stroke_width(if curve == 0 { 5 } else { 2 })
}

/// A number without the digits that binary fractions add.
fn plain(number: f64) -> String {
    format!("{}", (number * 1e6).round() / 1e6)
}

/// A number of bytes as users write it.
pub fn in_bytes(bytes: f64) -> String {
    let units = [("Gi", 30), ("Mi", 20), ("Ki", 10)].map(|(name, power)| (name, f64::from(1u32 << power)));
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}{name}", (bytes / unit * 100.0).round() / 100.0),
        None => format!("{bytes}"),
    }
}
