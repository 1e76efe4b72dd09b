#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "workload/transforms.h"

namespace spillway::workload {

class ArrivalStream;
struct Requests;

/// What a recorded output of 0 tokens means.
enum class EmptyOutputs : std::uint8_t { failed, served };

/// Recorded requests, replayed at their recorded times or through a client that keeps a limited
/// number of them in flight. `sha256` is a digest of the columns and represents them
/// in comparisons and in the written form, from which the columns are read again. `rows`, `sha256`
/// and `requests` are those of the record, before the transforms.
struct Trace {
  std::string file;
  std::string sha256;
  std::int64_t rows = 0;
  std::int64_t max_in_flight = 0;
  std::optional<std::int64_t> open_loop_requests;
  double turnaround_s = 0;
  std::int64_t session_segments = 0;
  EmptyOutputs empty_outputs = EmptyOutputs::failed;
  Transforms transforms;
  std::shared_ptr<const Requests> requests;

  static constexpr std::string_view kind = "trace", type_name = "Trace";
  static constexpr std::string_view doc =
      "Recorded requests. Read one with spillway.read_trace(file) or build "
      "one with spillway.trace(arrival_s=…, input_tokens=…, output_tokens=…); on the command line, "
      "use --trace.";
  static void fields(auto field) {
    field("file", &Trace::file, "File from which the requests were read; empty: none.");
    field("sha256", &Trace::sha256,
          "Digest of the requests' content, before the transforms; empty: no requests.");
    field("rows", &Trace::rows, "Number of requests, before the transforms.")
        .unit("requests")
        .range(sim::at_least(0));
    field("max_in_flight", &Trace::max_in_flight,
          "Maximum number of requests that the recording client kept in flight; 0: unlimited. A "
          "request arrives when one of max_in_flight places is free: an arrival takes a place, "
          "which becomes free turnaround_s after the end of the request (of its last attempt, "
          "whatever the outcome). Places are taken in file order.")
        .unit("requests")
        .range(sim::between(0, 1e9));
    field("open_loop_requests", &Trace::open_loop_requests,
          "With max_in_flight: this many of the first requests do not arrive before their recorded "
          "times; the others arrive as soon as a place is free, because the times that a client "
          "at its limit recorded are those of the server's past answers. Unset: the first "
          "max_in_flight.")
        .unit("requests")
        .range(sim::between(0, 1e12));
    field("turnaround_s", &Trace::turnaround_s,
          "Time from the end of a request to the next one in its place, with max_in_flight.")
        .unit("s")
        .range(sim::between(0, 1e6));
    field(
        "session_segments", &Trace::session_segments,
        "Requests whose prompts begin with the same session_segments shared segments (blocks of a "
        "Mooncake trace; a prefix group is one segment) are one session, which transforms keep "
        "whole. 0: every request is a session of its own.")
        .unit("segments")
        .range(sim::between(0, 1e6));
    field("empty_outputs", &Trace::empty_outputs,
          "Requests with 0 output tokens. failed: calls that failed where they were recorded, e.g. "
          "with status 429 or 503. They pass the gateway like others, and fail as they reach their "
          "instance, without work there. served: their prompts are computed, and they complete, as "
          "always with metrics.accounting = blis.");
    field("transforms", &Trace::transforms,
          "Changes of the requests before they are replayed, one after the other. Those that are "
          "random draw anew for each seed.");
    field("requests", &Trace::requests, "The columns.").hidden();
  }
  /// Transforms of arrivals contradict a client that waits for answers.
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
  /// The digest identifies the requests, wherever they were read from.
  bool is_part_of_identity(std::string_view field) const {
    return field != "file" || sha256.empty();
  }
};

/// Requests one at a time, from the row `first` on.
std::unique_ptr<ArrivalStream> stream(std::shared_ptr<const Requests> requests,
                                      std::size_t first = 0);

/// The tenants, or classes, that requests of the trace may have before and after its transforms.
std::vector<std::string> possible_tenants(const Trace& trace);
std::vector<std::string> possible_slo_classes(const Trace& trace);

/// Reports invalid columns: unequal lengths, an unsorted row, a count out of range. Rows count from
/// 0.
void check_requests(const Requests& requests, const std::string& path,
                    std::vector<sim::Violation>& out);

}  // namespace spillway::workload

template <>
struct spillway::sim::EnumNames<spillway::workload::EmptyOutputs> {
  static constexpr std::array<std::string_view, 2> names{"failed", "served"};
};
