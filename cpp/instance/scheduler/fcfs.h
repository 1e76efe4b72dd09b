#pragma once

#include <memory>
#include <string_view>

namespace spillway::workload {
class RequestTable;
}

namespace spillway::instance {

class SchedulerPolicy;

/// First come, first served: new requests join the tail, preempted ones the front.
struct Fcfs {
  static constexpr std::string_view kind = "fcfs", type_name = "Fcfs";
  static constexpr std::string_view doc =
      "First come, first served: new requests join the tail, preempted ones the front.";
  static void fields(auto /*field*/) {}
};

std::unique_ptr<SchedulerPolicy> make(const Fcfs& config, const workload::RequestTable& requests);

}  // namespace spillway::instance
