#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "signals/needs.h"
#include "sim/schema/enum.h"

namespace spillway::workload {
class RequestTable;
}

namespace spillway::instance {

class SchedulerPolicy;

/// The length of a job.
enum class JobLength : std::uint8_t { prompt, output, total };

/// Shortest job first.
struct Sjf {
  JobLength length = JobLength::prompt;

  static constexpr std::string_view kind = "sjf", type_name = "Sjf";
  static constexpr std::string_view doc =
      "Shortest job first: the shortest prompt or output, then the earliest.";
  static void fields(auto field) {
    field("length", &Sjf::length,
          "What is compared. prompt: its length; output: the output by length_prediction, as of a "
          "predictor beside the engine (e.g. Qiu et al. 2024); total: both.");
  }
  signals::Needs needs() const { return {.output_lengths = length != JobLength::prompt}; }
};

std::unique_ptr<SchedulerPolicy> make(const Sjf& config, const workload::RequestTable& requests);

}  // namespace spillway::instance

template <>
struct spillway::sim::EnumNames<spillway::instance::JobLength> {
  static constexpr std::array<std::string_view, 3> names{"prompt", "output", "total"};
};
