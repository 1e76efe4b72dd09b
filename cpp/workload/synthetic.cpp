#include "workload/synthetic.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "sim/error.h"
#include "workload/arrivals/arrivals.h"
#include "workload/generate.h"
#include "workload/lengths/pair.h"
#include "workload/limits.h"
#include "workload/names.h"
#include "workload/rate_clock.h"
#include "workload/requests.h"

namespace spillway::workload {

namespace {

constexpr std::int64_t kDefaultCount = 1000;
constexpr std::int64_t kUnboundedCount = std::numeric_limits<std::int64_t>::max();

// Maximum number of requests of `config`.
std::int64_t largest_count(const Synthetic& config) {
  if (config.num_requests) return *config.num_requests;
  const bool ends = config.duration_s || std::ranges::all_of(config.clients, &Client::is_finite);
  return ends ? kUnboundedCount : kDefaultCount;
}

// One client's requests in order of arrival: the next arrival is known, and the rest is drawn when
// it is taken.
class ClientSource {
 public:
  ClientSource(const Client& client, std::size_t index, double rate_per_s, sim::Time end,
               std::uint64_t seed, sim::Quantum quantum)
      : arrivals_(std::visit([&](const auto& config) { return make(config, rate_per_s); },
                             client.arrivals)),
        clock_(client.start_s, client.rate_profile, client.rate_period_s),
        lengths_(client.input_tokens, client.output_tokens, client.length_correlation,
                 client.max_tokens),
        max_tokens_(static_cast<std::int32_t>(client.max_tokens.value_or(0))),
        prefix_tokens_(client.prefix_tokens),
        index_(index),
        count_(static_cast<std::uint64_t>(client.num_requests.value_or(kUnboundedCount))),
        end_s_(sim::to_seconds(end)),
        seed_(seed),
        quantum_(quantum) {
    draw_arrival();
  }

  /// The next arrival; kForever: none.
  sim::Time next_time() const { return next_time_; }

  Arrival take() {
    sim::Draws in(seed_, sim::Stream::input_lengths, ordinal_, index_);
    sim::Draws out(seed_, sim::Stream::output_lengths, ordinal_, index_);
    const LengthsOfRequest own = lengths_.draw(in, out);
    const Arrival arrival{.time = next_time_,
                          .input_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(
                              own.input_tokens + prefix_tokens_, kMaxTokens)),
                          .output_tokens = static_cast<std::int32_t>(own.output_tokens),
                          .max_tokens = max_tokens_};
    ++ordinal_;
    draw_arrival();
    return arrival;
  }

 private:
  void draw_arrival() {
    sim::Draws gap(seed_, sim::Stream::arrivals, ordinal_, index_);
    const double now_s = clock_.advance(arrivals_->gap_s(gap));
    const bool comes = now_s < end_s_ && ordinal_ < count_;
    next_time_ = comes ? quantum_.truncate_us(now_s * 1e6) : sim::kForever;
  }

  std::unique_ptr<ArrivalProcess> arrivals_;
  RateClock clock_;
  LengthPair lengths_;
  std::int32_t max_tokens_;
  std::int64_t prefix_tokens_;
  std::size_t index_;
  std::uint64_t count_;
  double end_s_;
  std::uint64_t seed_;
  sim::Quantum quantum_;
  std::uint64_t ordinal_ = 0;
  sim::Time next_time_;
};

// Merges the clients by (arrival, position of the client).
class SyntheticStream final : public ArrivalStream {
 public:
  SyntheticStream(const Synthetic& config, std::uint64_t seed, std::int64_t quantum_ns)
      : left_(largest_count(config)) {
    double fractions = 0;
    for (const Client& client : config.clients) {
      if (!client.requests_per_s && !client.closed_loop()) fractions += client.rate_fraction;
    }
    const sim::Time end = sim::from_seconds(config.duration_s.value_or(sim::kLongestSpan_s));
    for (std::size_t i = 0; i < config.clients.size(); ++i) {
      const Client& client = config.clients[i];
      const double rate_per_s = client.requests_per_s
                                    ? *client.requests_per_s
                                    : config.requests_per_s * client.rate_fraction / fractions;
      clients_.emplace_back(client, i, rate_per_s, client.end(end), seed, sim::Quantum(quantum_ns));
      named_.push_back(intern(client, names_));
      converses_ = converses_ || (client.closed_loop() && client.closed_loop()->turns > 1);
      states_max_tokens_ = states_max_tokens_ || client.max_tokens.has_value();
      order_.push_back(i);
    }
    std::make_heap(order_.begin(), order_.end(), Later{*this});
  }

  std::optional<Arrival> next() override {
    const std::optional<std::size_t> client = peek();
    if (!client) return std::nullopt;
    --left_;
    std::pop_heap(order_.begin(), order_.end(), Later{*this});
    Arrival arrival = clients_[*client].take();
    std::push_heap(order_.begin(), order_.end(), Later{*this});
    const NamedClient& named = named_[*client];
    arrival.tenant = named.tenant;
    arrival.slo_class = named.slo_class;
    arrival.model = named.model;
    if (named.prefix.tokens > 0) arrival.segments = {&named.prefix, 1};
    return arrival;
  }
  const std::vector<std::string>& tenants() const override { return names_.tenants.names(); }
  const std::vector<std::string>& slo_classes() const override {
    return names_.slo_classes.names();
  }
  std::vector<std::string> models() const override { return names_.models.names(); }
  bool shares_segments() const override {
    return !names_.prefix_groups.names().empty() || converses_;
  }
  bool shares_answers() const override { return converses_; }
  bool states_max_tokens() const { return states_max_tokens_; }

 private:
  /// Position of the client with the next request, if any.
  std::optional<std::size_t> peek() const {
    const std::size_t first = order_.front();
    if (left_ == 0 || clients_[first].next_time() == sim::kForever) return std::nullopt;
    return first;
  }

  struct Later {
    const SyntheticStream& stream;
    bool operator()(std::size_t a, std::size_t b) const {
      const sim::Time at_a = stream.clients_[a].next_time();
      const sim::Time at_b = stream.clients_[b].next_time();
      return at_a != at_b ? at_a > at_b : a > b;
    }
  };

  std::vector<ClientSource> clients_;
  std::vector<std::size_t> order_;  // heap of clients, the earliest in front
  Names names_;
  std::vector<NamedClient> named_;  // by client
  bool converses_ = false;          // some users have conversations of several turns
  bool states_max_tokens_ = false;
  std::int64_t left_;
};

}  // namespace

void Synthetic::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (clients.empty())
    out.push_back({sim::join_path(path, "clients"), "[]", "must hold at least one client"});
  std::unordered_set<std::string_view> names(clients.size());
  std::unordered_map<std::string_view, std::int64_t> tokens_of_group;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const Client& client = clients[i];
    const auto place = [&](const char* field) {
      return sim::join_path(sim::index_path(sim::join_path(path, "clients"), i), field);
    };
    if (!names.insert(client.name).second) {
      out.push_back({place("name"), "'" + client.name + "'", "must be unique"});
    }
    if (client.prefix_group.empty()) continue;
    const std::int64_t of_group =
        tokens_of_group.try_emplace(client.prefix_group, client.prefix_tokens).first->second;
    if (client.prefix_tokens != of_group) {
      out.push_back(
          {place("prefix_tokens"), std::to_string(client.prefix_tokens),
           "must equal that of the group's other client (" + std::to_string(of_group) + ")"});
    }
  }
}

std::unique_ptr<ArrivalStream> stream(const Synthetic& config, std::uint64_t seed,
                                      std::int64_t quantum_ns) {
  return std::make_unique<SyntheticStream>(config, seed, quantum_ns);
}

std::shared_ptr<const Requests> generate(const Synthetic& config, std::uint64_t seed,
                                         std::int64_t quantum_ns,
                                         const std::function<bool()>& interrupted) {
  SyntheticStream source(config, seed, quantum_ns);
  auto requests = std::make_shared<Requests>();
  requests->tenants = source.tenants();
  requests->slo_classes = source.slo_classes();
  requests->models = source.models();
  const bool shares = source.shares_segments();
  if (shares) requests->segment_begin.push_back(0);
  // Reserve everything where the number is known, so that no column is ever copied.
  const std::int64_t count = largest_count(config);
  const auto expected = count == kUnboundedCount ? 0 : static_cast<std::size_t>(count);
  requests->arrival.reserve(expected);
  requests->input_tokens.reserve(expected);
  requests->output_tokens.reserve(expected);
  requests->tenant.reserve(expected);
  requests->slo_class.reserve(expected);
  while (const std::optional<Arrival> arrival = source.next()) {
    requests->arrival.push_back(arrival->time);
    requests->input_tokens.push_back(arrival->input_tokens);
    requests->output_tokens.push_back(arrival->output_tokens);
    requests->tenant.push_back(arrival->tenant);
    requests->slo_class.push_back(arrival->slo_class);
    if (requests->size() % kRequestsBetweenChecks == 0 && interrupted && interrupted()) {
      throw sim::Interrupted();
    }
    if (source.states_max_tokens()) requests->max_tokens.push_back(arrival->max_tokens);
    if (!requests->models.empty()) requests->model.push_back(arrival->model);
    if (source.shares_answers()) requests->answer.push_back(arrival->answer);
    if (!shares) continue;
    requests->segments.insert(requests->segments.end(), arrival->segments.begin(),
                              arrival->segments.end());
    requests->segment_begin.push_back(static_cast<std::uint32_t>(requests->segments.size()));
  }
  return requests;
}

}  // namespace spillway::workload
