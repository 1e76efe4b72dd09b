#pragma once

#include <cstdint>

namespace spillway::signals {

/// Which changes of an instance a policy follows, so that it reads only changed instances again.
enum class Follows : std::uint8_t {
  nothing,   ///< it reads every instance at every decision
  requests,  ///< requests that are sent there, enter, or leave
  steps,     ///< these, and the start and end of steps
};

}  // namespace spillway::signals
