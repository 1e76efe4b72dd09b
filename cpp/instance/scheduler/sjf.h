#pragma once

#include <memory>
#include <string_view>

namespace spillway::workload {
class RequestTable;
}

namespace spillway::instance {

class SchedulerPolicy;

/// Shortest job first: the shortest prompt, then the earliest.
struct Sjf {
  static constexpr std::string_view kind = "sjf", type_name = "Sjf";
  static constexpr std::string_view doc =
      "Shortest job first: the shortest prompt, then the earliest.";
  static void fields(auto /*field*/) {}
};

std::unique_ptr<SchedulerPolicy> make(const Sjf& config, const workload::RequestTable& requests);

}  // namespace spillway::instance
