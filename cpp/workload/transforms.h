#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/error.h"
#include "sim/randomness.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/lengths/policies.h"
#include "workload/limits.h"

/// Changes of recorded requests: each makes new requests from those before it. A session is a
/// request, or the requests whose prompts begin alike (`Trace::session_segments`); its requests
/// keep their distances in time wherever a transform moves or repeats them.
namespace spillway::workload {

struct Requests;
struct Trace;

struct ScaleRate {
  double factor = 1;

  static constexpr std::string_view kind = "scale_rate", type_name = "ScaleRate";
  static constexpr std::string_view doc =
      "Divides every arrival time by factor: the same requests closer together or further apart. "
      "Bursts become shorter as well as steeper. The request rate is factor times as high.";
  static void fields(auto field) {
    field("factor", &ScaleRate::factor, "New rate over old rate.")
        .dimensionless()
        .range(sim::between(1e-6, 1e6))
        .log_search(0.1, 10);
  }
};

struct Thin {
  double keep_share = 0.5;

  static constexpr std::string_view kind = "thin", type_name = "Thin";
  static constexpr std::string_view doc =
      "Keeps each session independently with the probability keep_share.";
  static void fields(auto field) {
    field("keep_share", &Thin::keep_share, "Probability with which a session stays.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .search(0.1, 1);
  }
  bool draws() const { return keep_share < 1; }
};

struct Superpose {
  std::int64_t copies = 2;

  static constexpr std::string_view kind = "superpose", type_name = "Superpose";
  static constexpr std::string_view doc =
      "Superposes copies of the trace, all but the first rotated in time by a uniform random "
      "shift: "
      "what leaves the end of the trace enters at its beginning. The request rate is copies times "
      "as high and relatively smoother, as if as many independent groups of clients sent. Prompts "
      "of different copies share what different sessions share in the trace, and nothing else.";
  static void fields(auto field) {
    field("copies", &Superpose::copies, "Number of superposed traces, the original included.")
        .unit("traces")
        .range(sim::between(1, 10000));
  }
  bool draws() const { return copies > 1; }
};

struct Upsample {
  double factor = 2;
  double jitter_s = 1;

  static constexpr std::string_view kind = "upsample", type_name = "Upsample";
  static constexpr std::string_view doc =
      "Repeats each session factor times on average, each repetition displaced by a uniform random "
      "time of at most jitter_s in both directions. The rate is factor times as high at every "
      "time: "
      "bursts keep their times, lengths and relative heights. Prompts of repetitions share what "
      "different sessions share in the trace, and nothing else.";
  static void fields(auto field) {
    field("factor", &Upsample::factor, "New rate over old rate.")
        .dimensionless()
        .range(sim::between(1, 10000))
        .log_search(1, 10);
    field(
        "jitter_s", &Upsample::jitter_s,
        "Maximum displacement of a repetition. Structure of the traffic that is finer than this is "
        "lost.")
        .unit("s")
        .range(sim::between(0, 1e6));
  }
  bool draws() const { return factor > 1; }
};

struct Window {
  double start_s = 0;
  std::optional<double> duration_s;

  static constexpr std::string_view kind = "window", type_name = "Window";
  static constexpr std::string_view doc =
      "Keeps the requests that arrive from start_s until before start_s + duration_s; start_s "
      "becomes time 0. Sessions are cut where they cross the ends.";
  static void fields(auto field) {
    field("start_s", &Window::start_s, "Start of the window, in the time of the trace.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("duration_s", &Window::duration_s,
          "Length of the window; unset: until the end of the trace.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
  }
};

struct Shift {
  double by_s = 0;

  static constexpr std::string_view kind = "shift", type_name = "Shift";
  static constexpr std::string_view doc = "Delays every request by the same time.";
  static void fields(auto field) {
    field("by_s", &Shift::by_s, "The delay.").unit("s").range(sim::between(0, sim::kLongestSpan_s));
  }
};

struct Relabel {
  std::string from_tenant;
  std::string from_slo_class;
  std::int64_t min_input_tokens = 0;
  std::optional<std::int64_t> max_input_tokens;
  double share = 1;
  std::string tenant;
  std::string slo_class;

  static constexpr std::string_view kind = "relabel", type_name = "Relabel";
  static constexpr std::string_view doc =
      "Gives the requests that match all conditions another tenant, another class, or both.";
  static void fields(auto field) {
    field("from_tenant", &Relabel::from_tenant, "Condition: their tenant; empty: any.");
    field("from_slo_class", &Relabel::from_slo_class, "Condition: their class; empty: any.");
    field("min_input_tokens", &Relabel::min_input_tokens, "Condition: at least this long a prompt.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
    field("max_input_tokens", &Relabel::max_input_tokens,
          "Condition: at most this long a prompt; unset: any.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
    field("share", &Relabel::share,
          "Probability with which a session is relabeled, as a whole, where it matches.")
        .dimensionless()
        .range(sim::positive_up_to(1))
        .search(0.05, 1);
    field("tenant", &Relabel::tenant, "The new tenant; empty: as before.");
    field("slo_class", &Relabel::slo_class, "The new class; empty: as before.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
  bool draws() const { return share < 1; }
};

struct CapLengths {
  std::optional<std::int64_t> input_tokens;
  std::optional<std::int64_t> output_tokens;

  static constexpr std::string_view kind = "cap_lengths", type_name = "CapLengths";
  static constexpr std::string_view doc =
      "Shortens longer prompts and outputs; a prompt keeps its beginning.";
  static void fields(auto field) {
    field("input_tokens", &CapLengths::input_tokens, "Maximum length of a prompt; unset: none.")
        .unit("tokens")
        .range(sim::between(1, kMaxTokens));
    field("output_tokens", &CapLengths::output_tokens, "Maximum length of an output; unset: none.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
  }
};

struct DrawLengths {
  std::optional<Lengths> input_tokens;
  std::optional<Lengths> output_tokens;

  static constexpr std::string_view kind = "draw_lengths", type_name = "DrawLengths";
  static constexpr std::string_view doc =
      "Replaces the recorded lengths by independent draws from distributions.";
  static void fields(auto field) {
    field("input_tokens", &DrawLengths::input_tokens,
          "Length of the unshared part of a prompt, at least 1 token; unset: as recorded.")
        .unit("tokens");
    field("output_tokens", &DrawLengths::output_tokens, "Output length; unset: as recorded.")
        .unit("tokens");
  }
  bool draws() const { return sim::can_draw(input_tokens) || sim::can_draw(output_tokens); }
};

struct ScalePart {
  std::string tenant;
  std::string slo_class;
  double start_s = 0;
  std::optional<double> duration_s;
  double rate_factor = 1;
  double input_factor = 1;
  double output_factor = 1;
  double jitter_s = 1;

  static constexpr std::string_view kind = "scale_part", type_name = "ScalePart";
  static constexpr std::string_view doc =
      "Scales rate and lengths of a part of the trace: of the sessions whose first request is of "
      "the tenant and the class and arrives in the span of time. At a higher rate sessions are "
      "repeated within the span, as by upsample; at a lower one each stays with the probability "
      "rate_factor.";
  static void fields(auto field) {
    field("tenant", &ScalePart::tenant, "Their tenant; empty: any.");
    field("slo_class", &ScalePart::slo_class, "Their class; empty: any.");
    field("start_s", &ScalePart::start_s, "Start of the span, in the time of the trace.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("duration_s", &ScalePart::duration_s,
          "Length of the span; unset: until the end of the trace.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
    field("rate_factor", &ScalePart::rate_factor, "New rate over old rate; 0: none of them stays.")
        .dimensionless()
        .range(sim::between(0, 10000));
    field("input_factor", &ScalePart::input_factor,
          "New length of a prompt over the old one, at least 1 token; what prompts share with each "
          "other is scaled too.")
        .dimensionless()
        .range(sim::between(1e-3, 1000))
        .log_search(0.1, 10);
    field("output_factor", &ScalePart::output_factor,
          "New length of an output over the old one, at least 1 token unless it has none.")
        .dimensionless()
        .range(sim::between(1e-3, 1000))
        .log_search(0.1, 10);
    field("jitter_s", &ScalePart::jitter_s,
          "Maximum displacement of a repetition, in both directions.")
        .unit("s")
        .range(sim::between(0, 1e6));
  }
  bool scales_lengths() const { return input_factor != 1 || output_factor != 1; }
  bool draws() const { return rate_factor != 1 && rate_factor != 0; }
};

struct BlockResample {
  double block_s = 60;
  std::optional<double> duration_s;

  static constexpr std::string_view kind = "block_resample", type_name = "BlockResample";
  static constexpr std::string_view doc =
      "Circular block bootstrap (Politis and Romano 1992): joins blocks of block_s that start at "
      "uniform random times, until the result is as long as the trace. A session belongs, as a "
      "whole, to the block in which it starts. Every seed gives another resample, so that runs "
      "under "
      "several seeds show how much a figure varies between traces of this length. The traffic must "
      "be stationary: its rate may fluctuate, but not have a trend. Prompts of a repeated block "
      "share "
      "what different sessions share in the trace, and nothing else.";
  static void fields(auto field) {
    field("block_s", &BlockResample::block_s,
          "Length of a block: longer than the memory of the traffic and of the served system, and "
          "at most a tenth of the trace.")
        .unit("s")
        .range(sim::between(1e-3, sim::kLongestSpan_s));
    field("duration_s", &BlockResample::duration_s,
          "Length of the result; unset: that of the trace.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
  }
  static constexpr bool draws() { return true; }
};

using Transform = std::variant<ScaleRate, Thin, Superpose, Upsample, Window, Shift, Relabel,
                               CapLengths, DrawLengths, ScalePart, BlockResample>;
using Transforms = std::vector<Transform>;

/// Whether it changes which requests arrive, or when.
bool changes_arrivals(const Transform& transform);

/// The time from the first arrival to the last, and one mean gap more: the length of the trace for
/// the transforms that rotate or resample it.
sim::Time length_of(const Requests& requests);

/// The requests of a trace after all its transforms; its own ones if it has none. Throws
/// ConfigError if a transform cannot be applied to them, or leaves none. Precondition: the trace
/// has requests.
std::shared_ptr<const Requests> transformed(const Trace& trace, std::uint64_t seed);

}  // namespace spillway::workload
