#pragma once

#include <span>
#include <string_view>

namespace spillway::cluster {

/// One setting of a profile. In `path`, `instances[]` means every group.
struct ProfileSetting {
  std::string_view path;
  std::string_view vllm;
  std::string_view blis_0_6;
  std::string_view why;
};

/// Every setting in which the two profiles differ. A profile consists only of these values; no code
/// depends on the active profile.
///
/// `vllm`: causal, like a real server; the values are the defaults of their fields. `blis_0_6`:
/// like BLIS v0.6.14 with its blackbox latency model, to the microsecond, without its leak of KV
/// blocks.
std::span<const ProfileSetting> profile_settings();

}  // namespace spillway::cluster
