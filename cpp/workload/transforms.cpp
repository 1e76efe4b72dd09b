#include "workload/transforms.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "sim/mix.h"
#include "sim/rng.h"
#include "sim/value.h"
#include "workload/lengths/lengths.h"
#include "workload/prompts.h"
#include "workload/requests.h"
#include "workload/trace.h"

namespace spillway::workload {

namespace {

using sim::Draws;
using sim::Time;

/// Most requests after a transform.
constexpr double kMostRequests = 1e8;
/// Most blocks of a resample.
constexpr std::int64_t kMostBlocks = 10'000'000;
constexpr std::uint32_t kNoSession = 0xFFFFFFFF;
/// Content ids in files have at most 63 bits.
constexpr std::uint64_t kContentBits = 0x7FFFFFFFFFFFFFFF;

/// One request of the result: a row of the requests before the transform, at another time.
struct Pick {
  Time at;
  std::uint32_t row = 0;
  std::uint32_t copy = 0;  ///< 0: the original; other numbers have contents of their own
};

/// The rows of each session, in order of their first arrivals.
class Sessions {
 public:
  Sessions(const Requests& requests, std::int64_t segments) : of_row_(requests.size()) {
    const auto depth = static_cast<std::size_t>(segments);
    std::unordered_map<std::uint64_t, std::uint32_t> known;
    for (std::size_t row = 0; row < requests.size(); ++row) {
      const std::span<const Segment> all = requests.segments_of(row);
      auto session = static_cast<std::uint32_t>(rows_.size());
      if (depth > 0 && all.size() >= depth) {
        SharedBeginnings beginnings(all.first(depth));
        while (beginnings.advance()) {
        }
        session = known.try_emplace(beginnings.key(), session).first->second;
      }
      if (session == rows_.size()) rows_.emplace_back();
      rows_[session].push_back(static_cast<std::uint32_t>(row));
      of_row_[row] = session;
    }
  }
  std::size_t size() const { return rows_.size(); }
  std::span<const std::uint32_t> rows(std::size_t session) const { return rows_[session]; }
  std::uint32_t of(std::size_t row) const { return of_row_[row]; }

 private:
  std::vector<std::uint32_t> of_row_;
  std::vector<std::vector<std::uint32_t>> rows_;
};

/// Applies one transform.
class Transformation {
 public:
  Transformation(const Requests& from, std::int64_t session_segments, std::uint64_t seed,
                 std::size_t position)
      : from_(from),
        session_segments_(session_segments),
        sessions_(from, session_segments),
        seed_(seed),
        position_(position) {}

  Requests operator()(const ScaleRate& by) const {
    return retimed([&](Time at) {
      const double ns = static_cast<double>(at.ns) / by.factor;
      // Beyond the limit, which check_requests reports.
      return Time{ns < 9e18 ? std::llround(ns) : 9'000'000'000'000'000'000};
    });
  }

  Requests operator()(const Shift& shift) const {
    return retimed([&](Time at) { return at + sim::from_seconds(shift.by_s); });
  }

  Requests operator()(const Window& window) const {
    const Time start = sim::from_seconds(window.start_s);
    const Time end =
        window.duration_s ? start + sim::from_seconds(*window.duration_s) : sim::kForever;
    std::vector<Pick> picks;
    for (std::size_t row = 0; row < from_.size(); ++row) {
      const Time at = from_.arrival[row];
      if (at >= start && at < end) picks.push_back({at - start, index(row), 0});
    }
    return gathered(std::move(picks));
  }

  Requests operator()(const Thin& thin) const {
    std::vector<Pick> picks;
    for (std::size_t session = 0; session < sessions_.size(); ++session) {
      if (draws(session).uniform() >= thin.keep_share) continue;
      add(picks, session, Time{0}, 0);
    }
    return gathered(std::move(picks));
  }

  Requests operator()(const Superpose& superpose) const {
    check_growth(static_cast<double>(superpose.copies), "copies");
    std::vector<Pick> picks;
    const Time first = from_.arrival.front();
    const Time length = length_of(from_);
    for (std::int64_t copy = 0; copy < superpose.copies; ++copy) {
      const auto name = static_cast<std::uint32_t>(copy);
      const Time turn = copy == 0 ? Time{0} : instant(draws(name), length);
      for (std::size_t session = 0; session < sessions_.size(); ++session) {
        const Time start = start_of(session);
        const bool wraps = start - first + turn >= length;
        add(picks, session, wraps ? turn - length : turn, name);
      }
    }
    return gathered(std::move(picks));
  }

  Requests operator()(const Upsample& upsample) const {
    check_growth(upsample.factor, "factor");
    std::vector<Pick> picks;
    const Time first = from_.arrival.front();
    const Time last = from_.arrival.back();
    const double whole = std::floor(upsample.factor);
    for (std::size_t session = 0; session < sessions_.size(); ++session) {
      Draws draw = draws(session);
      const double more = draw.uniform() < upsample.factor - whole ? 1 : 0;
      const auto copies = static_cast<std::uint32_t>(whole + more);
      const Time start = start_of(session);
      add(picks, session, Time{0}, 0);
      for (std::uint32_t copy = 1; copy < copies; ++copy) {
        const Time by = sim::from_seconds(upsample.jitter_s * (2 * draw.uniform() - 1));
        add(picks, session, std::clamp(start + by, first, last) - start, copy);
      }
    }
    return gathered(std::move(picks));
  }

  Requests operator()(const ScalePart& part) const {
    if (part.scales_lengths()) {
      Requests scaled = scaled_lengths(part);
      if (part.rate_factor == 1) return scaled;
      ScalePart rate = part;
      rate.input_factor = rate.output_factor = 1;
      return Transformation(scaled, session_segments_, seed_, position_)(rate);
    }
    const Time first = std::max(from_.arrival.front(), sim::from_seconds(part.start_s));
    const Time last = std::min(from_.arrival.back(), end_of(part));
    check_growth(std::max(1.0, part.rate_factor), "rate_factor");
    std::vector<Pick> picks;
    const double whole = std::floor(part.rate_factor);
    for (std::size_t session = 0; session < sessions_.size(); ++session) {
      if (!is_in(part, session)) {
        add(picks, session, Time{0}, 0);
        continue;
      }
      Draws draw = draws(session);
      const double more = draw.uniform() < part.rate_factor - whole ? 1 : 0;
      const auto copies = static_cast<std::uint32_t>(whole + more);
      if (copies > 0) add(picks, session, Time{0}, 0);
      const Time start = start_of(session);
      for (std::uint32_t copy = 1; copy < copies; ++copy) {
        const Time by = sim::from_seconds(part.jitter_s * (2 * draw.uniform() - 1));
        add(picks, session, reflected(start + by, first, last) - start, copy);
      }
    }
    return gathered(std::move(picks));
  }

  Requests operator()(const BlockResample& resample) const {
    const Time first = from_.arrival.front();
    const Time length = length_of(from_);
    const Time block = sim::from_seconds(resample.block_s);
    if (block > length) {
      refuse("block_s", sim::to_text(resample.block_s),
             "must be <= the length of the trace, " + sim::to_text(sim::to_seconds(length)) + " s");
    }
    const Time result = resample.duration_s ? sim::from_seconds(*resample.duration_s) : length;
    check_growth(static_cast<double>(result.ns) / static_cast<double>(length.ns), "duration_s");
    if (result.ns / block.ns > kMostBlocks) {
      refuse("block_s", sim::to_text(resample.block_s),
             "must divide the result into at most " + std::to_string(kMostBlocks) + " blocks");
    }
    std::vector<std::int64_t> starts;
    starts.reserve(sessions_.size());
    for (std::size_t session = 0; session < sessions_.size(); ++session) {
      starts.push_back((start_of(session) - first).ns);
    }
    std::vector<Pick> picks;
    std::vector<std::uint32_t> times_taken(sessions_.size());
    for (std::int64_t number = 0; number * block.ns < result.ns; ++number) {
      const std::int64_t to = number * block.ns;
      const std::int64_t begin = instant(draws(static_cast<std::uint64_t>(number)), length).ns;
      const std::int64_t end = begin + std::min(block.ns, result.ns - to);
      // The part up to the end of the trace, and the part from its beginning.
      for (const std::int64_t turn : {std::int64_t{0}, length.ns}) {
        const auto at = std::ranges::lower_bound(starts, begin - turn);
        for (auto start = at; start != starts.end() && *start + turn < end; ++start) {
          const auto session = static_cast<std::size_t>(start - starts.begin());
          add(picks, session, Time{to - begin + turn}, times_taken[session]++);
        }
      }
    }
    return gathered(std::move(picks));
  }

  Requests operator()(const Relabel& rule) const {
    Requests to = from_;
    const auto code = [](std::vector<std::string>& names, const std::string& name) {
      const auto found = std::ranges::find(names, name);
      const auto position = static_cast<std::uint16_t>(found - names.begin());
      if (found == names.end()) names.push_back(name);
      return position;
    };
    const std::uint16_t tenant = rule.tenant.empty() ? 0 : code(to.tenants, rule.tenant);
    const std::uint16_t slo_class =
        rule.slo_class.empty() ? 0 : code(to.slo_classes, rule.slo_class);
    for (std::size_t row = 0; row < from_.size(); ++row) {
      const std::int64_t tokens = from_.input_tokens[row];
      const bool matches =
          (rule.from_tenant.empty() || from_.tenants[from_.tenant[row]] == rule.from_tenant) &&
          (rule.from_slo_class.empty() ||
           from_.slo_classes[from_.slo_class[row]] == rule.from_slo_class) &&
          tokens >= rule.min_input_tokens && tokens <= rule.max_input_tokens.value_or(kMaxTokens) &&
          draws(sessions_.of(row)).uniform() < rule.share;
      if (!matches) continue;
      if (!rule.tenant.empty()) to.tenant[row] = tenant;
      if (!rule.slo_class.empty()) to.slo_class[row] = slo_class;
    }
    drop_unused(to.tenant, to.tenants);
    drop_unused(to.slo_class, to.slo_classes);
    return to;
  }

  Requests operator()(const CapLengths& cap) const {
    Requests to = from_;
    for (std::size_t row = 0; row < from_.size(); ++row) {
      if (cap.output_tokens) {
        lower(to.output_tokens[row], *cap.output_tokens);
        if (!to.max_tokens.empty())
          lower(to.max_tokens[row], std::max<std::int64_t>(*cap.output_tokens, 1));
      }
      if (cap.input_tokens) lower(to.input_tokens[row], *cap.input_tokens);
    }
    if (!cap.input_tokens || from_.segment_begin.empty()) return to;
    to.segments.clear();
    for (std::size_t row = 0; row < from_.size(); ++row) {
      std::int64_t left = to.input_tokens[row];
      for (const Segment& segment : from_.segments_of(row)) {
        if (left == 0) break;
        const std::int64_t tokens = std::min<std::int64_t>(segment.tokens, left);
        to.segments.push_back({segment.content, static_cast<std::uint32_t>(tokens)});
        left -= tokens;
      }
      to.segment_begin[row + 1] = static_cast<std::uint32_t>(to.segments.size());
    }
    return with_warm_tokens_within(std::move(to));
  }

  Requests operator()(const DrawLengths& lengths) const {
    Requests to = from_;
    const auto input = lengths.input_tokens ? make_lengths(*lengths.input_tokens) : nullptr;
    const auto output = lengths.output_tokens ? make_lengths(*lengths.output_tokens) : nullptr;
    for (std::size_t row = 0; row < from_.size(); ++row) {
      Draws draw = draws(row);
      if (input) {
        const std::int64_t shared = shared_tokens(from_.segments_of(row));
        const std::int64_t own = std::max<std::int64_t>(1, input->tokens(draw));
        to.input_tokens[row] =
            static_cast<std::int32_t>(std::min<std::int64_t>(shared + own, kMaxTokens));
      }
      if (output) {
        Draws other(seed_, sim::Stream::traffic, row, position_ << 1 | 1);
        to.output_tokens[row] = static_cast<std::int32_t>(
            std::clamp<std::int64_t>(output->tokens(other), 0, most_output(row)));
      }
    }
    return to;
  }

 private:
  static Time end_of(const ScalePart& part) {
    const Time start = sim::from_seconds(part.start_s);
    return part.duration_s ? start + sim::from_seconds(*part.duration_s) : sim::kForever;
  }
  bool is_in(const ScalePart& part, std::size_t session) const {
    const std::size_t row = sessions_.rows(session).front();
    return (part.tenant.empty() || from_.tenants[from_.tenant[row]] == part.tenant) &&
           (part.slo_class.empty() || from_.slo_classes[from_.slo_class[row]] == part.slo_class) &&
           from_.arrival[row] >= sim::from_seconds(part.start_s) &&
           from_.arrival[row] < end_of(part);
  }
  /// A time beyond an end is as far within it, so that repetitions do not crowd at the ends.
  static Time reflected(Time at, Time first, Time last) {
    if (at < first) at = first + (first - at);
    if (at > last) at = last - (at - last);
    return std::clamp(at, first, last);
  }

  Requests scaled_lengths(const ScalePart& part) const {
    const auto scaled = [](std::int64_t tokens, double factor) {
      return std::clamp<std::int64_t>(std::llround(static_cast<double>(tokens) * factor), 1,
                                      kMaxTokens);
    };
    Requests to = from_;
    to.segments.clear();
    for (std::size_t row = 0; row < from_.size(); ++row) {
      const bool changes = is_in(part, sessions_.of(row));
      if (changes) {
        to.input_tokens[row] =
            static_cast<std::int32_t>(scaled(from_.input_tokens[row], part.input_factor));
        if (from_.output_tokens[row] > 0) {
          to.output_tokens[row] =
              static_cast<std::int32_t>(scaled(from_.output_tokens[row], part.output_factor));
        }
        if (from_.max_tokens_of(row) > 0) {
          to.max_tokens[row] =
              static_cast<std::int32_t>(scaled(from_.max_tokens[row], part.output_factor));
        }
      }
      if (from_.segment_begin.empty()) continue;
      std::int64_t left = to.input_tokens[row];
      for (Segment segment : from_.segments_of(row)) {
        const std::int64_t tokens =
            changes ? scaled(segment.tokens, part.input_factor) : segment.tokens;
        if (left == 0) break;
        segment.tokens = static_cast<std::uint32_t>(std::min(tokens, left));
        to.segments.push_back(segment);
        left -= segment.tokens;
      }
      to.segment_begin[row + 1] = static_cast<std::uint32_t>(to.segments.size());
      if (changes && !to.warm_tokens.empty()) {
        to.warm_tokens[row] = static_cast<std::int32_t>(
            std::llround(static_cast<double>(from_.warm_tokens[row]) * part.input_factor));
      }
    }
    return with_warm_tokens_within(std::move(to));
  }
  /// Warm tokens are among those of the shared segments.
  static Requests with_warm_tokens_within(Requests to) {
    for (std::size_t row = 0; row < to.warm_tokens.size(); ++row) {
      lower(to.warm_tokens[row], shared_tokens(to.segments_of(row)));
    }
    return to;
  }

  /// The longest output that the request allows.
  std::int64_t most_output(std::size_t row) const {
    const std::int32_t most = from_.max_tokens_of(row);
    return most > 0 ? most : kMaxTokens;
  }

  static std::uint32_t index(std::size_t row) { return static_cast<std::uint32_t>(row); }
  static void lower(std::int32_t& value, std::int64_t most) {
    value = static_cast<std::int32_t>(std::min<std::int64_t>(value, most));
  }

  Draws draws(std::uint64_t entity) const {
    return {seed_, sim::Stream::traffic, entity, position_ << 1};
  }
  /// Uniform on [0, length).
  static Time instant(Draws draw, Time length) {
    return {static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(length.ns)))};
  }

  [[noreturn]] void refuse(const std::string& field, const std::string& value,
                           const std::string& allowed) const {
    const std::string path = "workload.transforms[" + std::to_string(position_) + "]";
    throw sim::ConfigError({{field.empty() ? path : path + "." + field, value, allowed}});
  }

  void check_growth(double factor, const std::string& field) const {
    if (factor * static_cast<double>(from_.size()) <= kMostRequests) return;
    refuse(field, sim::to_text(factor) + " times the requests",
           "must not make more than 1e8 requests of the trace's " + std::to_string(from_.size()));
  }

  Time start_of(std::size_t session) const {
    return from_.arrival[sessions_.rows(session).front()];
  }

  void add(std::vector<Pick>& picks, std::size_t session, Time later, std::uint32_t copy) const {
    for (const std::uint32_t row : sessions_.rows(session)) {
      picks.push_back({from_.arrival[row] + later, row, copy});
    }
  }

  Requests retimed(const auto& at) const {
    Requests to = from_;
    for (Time& time : to.arrival) time = at(time);
    return to;
  }

  /// More # in a row than any name has, so that copies of copies have names of their own.
  std::string unused_mark() const {
    std::size_t longest = 0;
    for (const std::string& name : from_.request_id) {
      std::size_t length = 0;
      for (const char c : name) {
        length = c == '#' ? length + 1 : 0;
        longest = std::max(longest, length);
      }
    }
    std::string mark;
    mark.assign(longest + 1, '#');
    return mark;
  }

  /// The picked rows in order of arrival; equal times in the order of the copies, then of the rows.
  Requests gathered(std::vector<Pick> picks) const {
    if (picks.empty()) refuse("", "", "leaves no requests of the trace");
    std::ranges::sort(picks, {},
                      [](const Pick& pick) { return std::tuple(pick.at, pick.copy, pick.row); });
    const bool copies = std::ranges::any_of(picks, [](const Pick& pick) { return pick.copy > 0; });
    const std::vector<bool> is_private = copies ? private_segments() : std::vector<bool>{};
    std::unordered_set<std::uint64_t> private_contents;
    for (std::size_t i = 0; i < is_private.size() && !from_.answer.empty(); ++i) {
      if (is_private[i]) private_contents.insert(from_.segments[i].content);
    }
    const auto copied = [&](std::uint64_t content, std::uint32_t copy) {
      return sim::mix(sim::mix(content) ^ (position_ << 32 | copy)) & kContentBits;
    };
    const std::string mark = copies ? unused_mark() : "";
    Requests to;
    to.tenants = from_.tenants;
    to.slo_classes = from_.slo_classes;
    to.models = from_.models;
    for (const Attribute& attribute : from_.attributes) {
      to.attributes.push_back({attribute.name, {}, attribute.values});
      for (const Pick& pick : picks) to.attributes.back().code.push_back(attribute.code[pick.row]);
    }
    if (!from_.segment_begin.empty()) to.segment_begin.push_back(0);
    if (!from_.accepted_begin.empty()) to.accepted_begin.push_back(0);
    for (const Pick& pick : picks) {
      const std::size_t row = pick.row;
      to.arrival.push_back(pick.at);
      to.input_tokens.push_back(from_.input_tokens[row]);
      to.output_tokens.push_back(from_.output_tokens[row]);
      to.tenant.push_back(from_.tenant[row]);
      to.slo_class.push_back(from_.slo_class[row]);
      if (!from_.request_id.empty()) {
        std::string name = from_.request_id[row];
        if (pick.copy > 0) name.append(mark).append(std::to_string(pick.copy));
        to.request_id.push_back(std::move(name));
      }
      if (!from_.answer.empty()) {
        const std::uint64_t answer = from_.answer[row];
        const bool changes = pick.copy > 0 && private_contents.contains(answer);
        to.answer.push_back(changes ? copied(answer, pick.copy) : answer);
      }
      if (!from_.max_tokens.empty()) to.max_tokens.push_back(from_.max_tokens[row]);
      if (!from_.model.empty()) to.model.push_back(from_.model[row]);
      if (!from_.warm_tokens.empty()) to.warm_tokens.push_back(from_.warm_tokens[row]);
      if (!from_.accepted_begin.empty()) {
        const auto accepted = from_.accepted_of(row);
        to.accepted.insert(to.accepted.end(), accepted.begin(), accepted.end());
        to.accepted_begin.push_back(static_cast<std::uint32_t>(to.accepted.size()));
      }
      if (from_.segment_begin.empty()) continue;
      for (std::size_t i = from_.segment_begin[row]; i < from_.segment_begin[row + 1]; ++i) {
        Segment segment = from_.segments[i];
        if (pick.copy > 0 && is_private[i]) segment.content = copied(segment.content, pick.copy);
        to.segments.push_back(segment);
      }
      to.segment_begin.push_back(static_cast<std::uint32_t>(to.segments.size()));
    }
    return to;
  }

  /// For each segment, whether its content occurs in one session only.
  std::vector<bool> private_segments() const {
    std::unordered_map<std::uint64_t, std::uint32_t> session_of;
    for_each_segment([&](std::size_t i, std::uint32_t session) {
      auto& known = session_of.try_emplace(from_.segments[i].content, session).first->second;
      if (known != session) known = kNoSession;
    });
    std::vector<bool> found(from_.segments.size());
    for_each_segment([&](std::size_t i, std::uint32_t /*session*/) {
      found[i] = session_of.at(from_.segments[i].content) != kNoSession;
    });
    return found;
  }

  void for_each_segment(const auto& visit) const {
    if (from_.segment_begin.empty()) return;
    for (std::size_t row = 0; row < from_.size(); ++row) {
      for (std::size_t i = from_.segment_begin[row]; i < from_.segment_begin[row + 1]; ++i) {
        visit(i, sessions_.of(row));
      }
    }
  }

  static void drop_unused(std::vector<std::uint16_t>& codes, std::vector<std::string>& names) {
    std::vector<bool> is_used(names.size());
    for (const std::uint16_t code : codes) is_used[code] = true;
    std::vector<std::uint16_t> renumbered;
    std::vector<std::string> kept;
    for (std::size_t i = 0; i < names.size(); ++i) {
      renumbered.push_back(static_cast<std::uint16_t>(kept.size()));
      if (is_used[i]) kept.push_back(names[i]);
    }
    for (std::uint16_t& code : codes) code = renumbered[code];
    names = std::move(kept);
  }

  const Requests& from_;
  std::int64_t session_segments_;
  Sessions sessions_;
  std::uint64_t seed_;
  std::uint64_t position_;
};

}  // namespace

void Relabel::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (max_input_tokens && *max_input_tokens < min_input_tokens) {
    out.push_back({sim::join_path(path, "max_input_tokens"), std::to_string(*max_input_tokens),
                   "must be >= min_input_tokens (" + std::to_string(min_input_tokens) + ")"});
  }
}

bool changes_arrivals(const Transform& transform) {
  if (const auto* part = std::get_if<ScalePart>(&transform)) return part->rate_factor != 1;
  return !std::holds_alternative<Relabel>(transform) &&
         !std::holds_alternative<CapLengths>(transform) &&
         !std::holds_alternative<DrawLengths>(transform);
}

Time length_of(const Requests& requests) {
  const auto count = static_cast<std::int64_t>(requests.size());
  const Time between = requests.arrival.back() - requests.arrival.front();
  return between + Time{std::max<std::int64_t>(1, count > 1 ? between.ns / (count - 1) : 0)};
}

std::shared_ptr<const Requests> transformed(const Trace& trace, std::uint64_t seed) {
  std::shared_ptr<const Requests> requests = trace.requests;
  for (std::size_t i = 0; i < trace.transforms.size(); ++i) {
    const Transformation apply(*requests, trace.session_segments, seed, i);
    auto next = std::make_shared<Requests>(std::visit(apply, trace.transforms[i]));
    std::vector<sim::Violation> violations;
    check_requests(*next, "workload.transforms[" + std::to_string(i) + "]", violations);
    if (!violations.empty()) throw sim::ConfigError(std::move(violations));
    requests = std::move(next);
  }
  return requests;
}

}  // namespace spillway::workload
