//! Results as a plot: a line for each pair of things compared, a dot for each shape.

use plotters::prelude::*;

use super::{Group, Run};
use crate::step::Failure;

const LINE: u32 = 22;
const NAMES: u32 = 330;

/// The ratios of a run, on a logarithmic axis; the line is at 1: as fast as the peer.
pub fn ratios(run: &Run) -> Result<String, Failure> {
    let groups = Group::all(run);
    let mut svg = String::new();
    draw(&groups, &run.title(), &mut svg).map_err(|e| Failure::new(format!("a plot: {e}")))?;
    Ok(svg)
}

fn draw(groups: &[Group<'_>], title: &str, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let all = || groups.iter().flat_map(|g| &g.rows).map(|r| r.ratio);
    let (low, high) = (all().fold(0.5, f64::min) * 0.95, all().fold(1.25, f64::max) * 1.05);
    let count = groups.len() as u32;
    let root = SVGBackend::with_string(svg, (900, count * LINE + 80)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 15))
        .margin(8)
        .margin_left(NAMES)
        .x_label_area_size(30)
        .build_cartesian_2d((low..high).log_scale(), 0f64..f64::from(count))?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(TRANSPARENT)
        .x_labels(8)
        .x_desc("the peer's time / ours")
        .x_label_formatter(&|x| format!("{x:.2}"))
        .draw()?;
    chart.draw_series(LineSeries::new([(1.0, 0.0), (1.0, f64::from(count))], BLACK.stroke_width(2)))?;
    for (i, group) in groups.iter().enumerate() {
        let y = f64::from(count) - i as f64 - 0.5;
        chart.draw_series(group.rows.iter().map(|r| Circle::new((r.ratio, y), 3, BLUE.mix(0.5).filled())))?;
        let (_, at) = chart.backend_coord(&(1.0, y));
        let name = format!("{} {} / {}", group.op, group.dtype, group.peer);
        root.draw(&Text::new(name, (12, at - 7), ("sans-serif", 13)))?;
    }
    root.present()?;
    Ok(())
}
