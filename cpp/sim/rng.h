#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace spillway::sim {

/// The purpose of a draw. Each purpose has its own stream, so a policy that draws more, rejects or
/// reorders never shifts the numbers of another: any two configurations share common random
/// numbers.
enum class Stream : std::uint64_t {
  arrivals = 1,
  input_lengths = 2,
  output_lengths = 3,
  admission = 4,
  router = 5,
  step_durations = 6,
  controller = 7,
  scrapes = 8,
  gateways = 9,
  retries = 10,
  traffic = 11,
  drafts = 12,
  predictions = 13,
  breakdowns = 14,
};
/// Names of the streams, starting with stream 1.
inline constexpr std::array<std::string_view, 14> kStreamNames{
    "arrivals",       "input_lengths", "output_lengths", "admission", "router",
    "step_durations", "controller",    "scrapes",        "gateways",  "retries",
    "traffic",        "drafts",        "predictions",    "breakdowns"};

/// Philox4x64-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11): the block
/// of four 64-bit numbers at `counter` under `key`.
std::array<std::uint64_t, 4> philox4x64(std::array<std::uint64_t, 4> counter,
                                        std::array<std::uint64_t, 2> key);

/// Quantile of the standard normal distribution (Wichura 1988, algorithm AS 241). Precondition:
/// 0 < p < 1.
double normal_quantile(double p);

/// The draws of one entity (for example, the third request of the second client) in one stream.
/// Entities can be visited in any order. Equal to `numpy.random.Philox(key=[seed, stream],
/// counter=[0, entity, sub_entity, 0])`.
class Draws {
 public:
  Draws(std::uint64_t seed, Stream stream, std::uint64_t entity, std::uint64_t sub_entity = 0)
      : key_{seed, static_cast<std::uint64_t>(stream)}, counter_{0, entity, sub_entity, 0} {}

  std::uint64_t bits();
  /// Uniform on [0, 1) with 53 random bits, like NumPy's `random()`.
  double uniform();
  /// Uniform on (0, 1): never 0, so that logarithms exist.
  double uniform_open();
  /// Uniform on {0, …, n − 1}, without bias. Precondition: n > 0.
  std::uint64_t below(std::uint64_t n);
  /// Exponential with mean 1, by inversion.
  double exponential();
  /// Standard normal, by inversion of one uniform (Wichura 1988, algorithm AS 241).
  double normal();
  /// Gamma with scale 1 and the given shape > 0 (Marsaglia & Tsang 2000).
  double gamma(double shape);

 private:
  std::array<std::uint64_t, 2> key_;
  std::array<std::uint64_t, 4> counter_;
  std::array<std::uint64_t, 4> block_{};
  unsigned used_ = 4;
};

}  // namespace spillway::sim
