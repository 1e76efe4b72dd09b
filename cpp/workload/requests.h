#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/time.h"
#include "sim/value.h"

namespace spillway::workload {

/// A part of a prompt that other prompts may share. Two segments are the same if content and length
/// are equal.
struct Segment {
  std::uint64_t content = 0;
  std::uint32_t tokens = 0;
};

/// A further column of the requests, which only its name explains: texts, by number.
struct Attribute {
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  std::string name;
  std::vector<std::uint32_t> code;  ///< of each request; kNone: it has none
  std::vector<std::string> values;
};

class ColumnFiles;

/// The offered requests: immutable columns, one row per request in order of arrival, shared by
/// every run that replays them.
///
/// A prompt begins with its shared segments; the rest of its `input_tokens` is unshared. If it has
/// no unshared rest and a later prompt may repeat its answer, that has a content, too.
struct Requests : sim::Attachment {
  std::vector<sim::Time> arrival;
  std::vector<std::int32_t> input_tokens;   ///< whole prompt, shared segments included; ≥ 1
  std::vector<std::int32_t> output_tokens;  ///< ≥ 0
  std::vector<std::uint16_t> tenant;        ///< index into `tenants`
  std::vector<std::uint16_t> slo_class;     ///< index into `slo_classes`
  std::vector<Segment> segments;
  std::vector<std::uint32_t>
      segment_begin;  ///< size() + 1 offsets; empty if no prompt has a shared segment
  std::vector<std::uint64_t>
      answer;  ///< content of the output as a segment; 0: no prompt repeats it; empty: none has
  /// Tokens at the beginning of each prompt that are in every prefix cache when the run starts;
  /// empty: none. They are among its shared segments.
  std::vector<std::int32_t> warm_tokens;
  std::vector<std::int32_t> max_tokens;  ///< limit of each answer, 0: none; empty: none has one
  std::vector<std::uint8_t> accepted;    ///< accepted drafts of each request, in turn
  std::vector<std::uint32_t> accepted_begin;  ///< size() + 1 offsets; empty: not stated
  std::vector<std::string> request_id;        ///< the source's names; empty: the row numbers
  std::vector<Attribute> attributes;          ///< their names differ
  /// The model that each names: 0: none, i: the i-th of `models`; empty: none names one.
  std::vector<std::uint16_t> model;
  std::vector<std::string> models;
  std::vector<std::string> tenants;
  std::vector<std::string> slo_classes;
  std::shared_ptr<const ColumnFiles> files;  ///< where the columns are if not here, which are empty

  std::size_t size() const { return arrival.size(); }
  /// The shared segments at the beginning of a row's prompt.
  std::span<const Segment> segments_of(std::size_t row) const {
    if (segment_begin.empty()) return {};
    return std::span(segments).subspan(segment_begin[row],
                                       segment_begin[row + 1] - segment_begin[row]);
  }
  /// How many drafts are accepted in the first, second, … step of the request that has drafts, over
  /// and over; empty: not stated.
  std::span<const std::uint8_t> accepted_of(std::size_t row) const {
    if (accepted_begin.empty()) return {};
    return std::span(accepted).subspan(accepted_begin[row],
                                       accepted_begin[row + 1] - accepted_begin[row]);
  }
  std::int32_t max_tokens_of(std::size_t row) const {
    return max_tokens.empty() ? 0 : max_tokens[row];
  }
  std::uint16_t model_of(std::size_t row) const { return model.empty() ? 0 : model[row]; }
  std::uint64_t answer_of(std::size_t row) const { return answer.empty() ? 0 : answer[row]; }
};

/// One arriving request; tenant and class as in `Requests`.
struct Arrival {
  sim::Time time;
  std::int32_t input_tokens = 0;
  std::int32_t output_tokens = 0;
  std::uint16_t tenant = 0;
  std::uint16_t slo_class = 0;
  std::span<const Segment> segments;  ///< valid as long as the stream
  std::uint64_t answer = 0;           ///< as in `Requests`
  std::int32_t max_tokens = 0;        ///< as in `Requests`
  std::uint16_t model = 0;            ///< as in `Requests`
};

/// Requests in order of arrival, one at a time.
class ArrivalStream {
 public:
  virtual ~ArrivalStream() = default;
  virtual std::optional<Arrival> next() = 0;
  virtual const std::vector<std::string>& tenants() const = 0;
  virtual const std::vector<std::string>& slo_classes() const = 0;
  /// The models that requests name.
  virtual std::vector<std::string> models() const { return {}; }
  /// Whether any prompt has a shared segment.
  virtual bool shares_segments() const = 0;
  /// Whether any prompt may repeat an earlier answer.
  virtual bool shares_answers() const { return false; }
};

}  // namespace spillway::workload
