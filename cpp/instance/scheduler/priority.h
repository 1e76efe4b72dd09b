#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/ids.h"
#include "sim/schema/enum.h"
#include "workload/request_table.h"

namespace spillway::instance {

/// What a scheduler takes for the priority of a request.
enum class Priority : std::uint8_t { slo_class, constant, age, inverted_age };

/// The priority as a number of which the smallest is the most urgent.
inline std::int64_t urgency_rank(Priority priority, sim::RequestId id,
                                 const workload::RequestTable& requests) {
  switch (priority) {
    case Priority::slo_class:
      return -requests.class_of(id).priority;
    case Priority::constant:
      return 0;
    case Priority::age:
      return requests.arrival(id).ns;
    case Priority::inverted_age:
      return -requests.arrival(id).ns;
  }
  return 0;
}

inline constexpr std::string_view kPriorityDoc =
    "slo_class: the priority of the request's class; constant: none; age: the longer it has waited "
    "the more urgent; "
    "inverted_age: the opposite.";

}  // namespace spillway::instance

template <>
struct spillway::sim::EnumNames<spillway::instance::Priority> {
  static constexpr std::array<std::string_view, 4> names{"slo_class", "constant", "age",
                                                         "inverted_age"};
};
