// The page's script. It asks each gateway by itself, keeps what it had where a call
// fails, and shows texts of others as text alone: nothing here makes markup of data.
'use strict';

// How often a call is made, in ms. A gateway counts in steps of some seconds.
const every = { status: 2000, history: 5000, refused: 6000, asking: 6000, events: 4000 };

const calls = {
	status: () => 'status',
	history: () => 'history',
	refused: () => 'top?limit=50',
	asking: () => 'top?by=requests&limit=50',
	events: g => g.lastEvent ? 'events?after=' + g.lastEvent : 'events',
};

const state = {
	gateways: [], // {number, name, answers: {call: body}, at: {call: ms}, failed: {call: {since, text}}}
	lost: null, // since when the page's own server does not answer
	paused: false,
	names: false, // tenants are shown as they are
	first: new Map(), // when a finding was first there
	cursor: null, // the step of the charts that the reader points at, counted from the end
};

// Texts and elements.

const $ = id => document.getElementById(id);

function el(name, attributes = {}, ...children) {
	const node = document.createElement(name);
	for (const [key, value] of Object.entries(attributes)) {
		if (key === 'onclick') node.addEventListener('click', value);
		else if (value !== undefined && value !== false) node.setAttribute(key, value);
	}
	node.append(...children.filter(child => child !== undefined && child !== ''));
	return node;
}

function svg(name, attributes = {}, ...children) {
	const node = document.createElementNS('http://www.w3.org/2000/svg', name);
	for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
	node.append(...children);
	return node;
}

function setText(node, text) {
	if (node.textContent !== text) node.textContent = text;
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const number = n => Math.abs(n) < 10 && !Number.isInteger(n) ? tenth.format(n) : whole.format(n);
const percent = part => part > 0 && part < 0.001 ? '< 0.1 %' : (part < 0.1 || part > 0.99 && part < 1 ? tenth : whole).format(Math.floor(part * 1000) / 10) + ' %';
const many = (n, one, more) => whole.format(n) + ' ' + (n === 1 ? one : more || one + 's');
const two = n => String(n).padStart(2, '0');

function clock(time, seconds) {
	const d = new Date(time);
	if (Number.isNaN(d.getTime())) return '?';
	const day = Math.abs(Date.now() - d) > 86400e3 ? d.getFullYear() + '-' + two(d.getMonth() + 1) + '-' + two(d.getDate()) + ' ' : '';
	return day + d.getHours() + ':' + two(d.getMinutes()) + (seconds ? ':' + two(d.getSeconds()) : '');
}

function span(seconds) {
	if (seconds > 0 && seconds < 1) return Math.ceil(seconds * 1000) + ' ms';
	if (seconds < 10 && !Number.isInteger(seconds)) return tenth.format(seconds) + ' s';
	if (seconds < 120) return Math.round(seconds) + ' s';
	if (seconds < 7200) return Math.round(seconds / 60) + ' min';
	return seconds < 172800 ? Math.round(seconds / 3600) + ' h' : Math.round(seconds / 86400) + ' d';
}

const age = at => span(Math.max(0, Math.round((Date.now() - at) / 1000)));

// rate is a rule's, in the words of the Caddyfile.
function rate(rule) {
	if (!rule) return '';
	if (!rule.capacity) return rule.concurrent + ' at once';
	const refill = rule.refill_per_second;
	const near = n => n >= 0.5 && Math.abs(n - Math.round(n)) < 1e-9 * n;
	let text = refill.toPrecision(6) / 1 + '/s';
	const unit = [['s', 1], ['m', 60], ['h', 3600], ['d', 86400]].find(([, seconds]) => near(refill * seconds));
	if (unit) text = Math.round(refill * unit[1]) + '/' + unit[0];
	else if (near(1 / refill)) text = '1/' + Math.round(1 / refill) + 's';
	return text + ' burst ' + rule.capacity;
}

// A tenant may be an API key, so that it is hidden until it is asked for. The
// gateway's own names, such as ~guest, are no secret.
function tenantText(tenant) {
	if (state.names || /^~(guest|blank|ip-|sha256-)/.test(tenant)) return tenant;
	const signs = Array.from(tenant);
	return signs.slice(0, signs.length >= 12 ? 4 : 1).join('') + '••••••';
}

const isList = value => Array.isArray(value) ? value : [];

// Asking.

// lane lets so many do something at a time.
function lane(places) {
	const waiting = [];
	return async work => {
		if (places > 0) places--;
		else await new Promise(go => waiting.push(go));
		try {
			await work();
		} finally {
			if (waiting.length) waiting.shift()();
			else places++;
		}
	};
}

// Gateways that hang must not keep the page from those that answer: a browser has
// six connections.
const lanes = { well: lane(4), ill: lane(1) };

const rest = ms => new Promise(done => setTimeout(done, ms));

// awake waits while the page is paused, or nobody can see it.
async function awake() {
	while (state.paused || document.hidden) await rest(250);
}

async function follow(g) {
	for (;;) {
		await awake();
		await lanes[g.failed.status ? 'ill' : 'well'](() => poll(g));
		await rest(every.status);
	}
}

async function poll(g) {
	for (const call of Object.keys(calls)) {
		if (Date.now() - (g.asked[call] || 0) < every[call] - 500) continue;
		g.asked[call] = Date.now();
		const answered = await ask(g, call);
		draw();
		if (!answered && call === 'status') return;
	}
}

// ask makes a call and keeps its answer, or why there is none.
async function ask(g, call) {
	try {
		const body = await fetchJSON(g, calls[call](g));
		check[call](body);
		if (call === 'events') keepEvents(g, body);
		g.answers[call] = body;
		g.at[call] = Date.now();
		delete g.failed[call];
		return true;
	} catch (error) {
		if (error.missing && call !== 'status') g.missing.add(call); // an older gateway
		else g.failed[call] = { since: g.failed[call] ? g.failed[call].since : Date.now(), text: error.message };
		if (error.missing) g.asked[call] = Date.now() + 60000;
		return false;
	}
}

// check fails where an answer is not what the page can show.
const isObject = value => { if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new Error('its answer is not what this page understands'); };
const check = {
	status: body => { isObject(body); isObject(body.memory); if (body.redis) body.redis.nodes.forEach(isObject); if (body.rules) isObject(body.rules); },
	history: body => { isObject(body); body.series.forEach(series => series.counts.forEach(n => { if (!(n >= 0)) isObject(null); })); if (!(body.step_seconds > 0) || !(Date.parse(body.at) >= Date.parse(body.from))) isObject(null); },
	refused: body => { isObject(body); body.buckets.forEach(bucket => { isObject(bucket); String(bucket.tenant + bucket.route); }); },
	events: body => { isObject(body); body.events.forEach(isObject); },
};
check.asking = check.refused;

// fetchJSON returns the answer of a gateway. Its errors are for people.
async function fetchJSON(g, call, method = 'GET', form) {
	const options = { method, body: form, cache: 'no-store', credentials: 'omit', signal: AbortSignal.timeout(method === 'GET' ? 15000 : 60000) };
	let response, text;
	try {
		response = await fetch('at/' + g.number + '/rate_limit/' + call, options);
		text = await response.text();
		state.lost = null;
	} catch (error) {
		state.lost = state.lost || Date.now();
		throw new Error('this page does not reach its command');
	}
	let body = null;
	try {
		body = JSON.parse(text);
	} catch (error) {
		throw new Error('its answer broke off');
	}
	if (response.ok) return body;
	const told = body && typeof body.error === 'string' ? body.error : 'no reason was told';
	const error = new Error(response.status === 502 && !/^Redis/.test(told) ? told : response.status + ': ' + told);
	error.missing = response.status === 404 && /is not there/.test(told) || response.status === 400 && /unknown parameter/.test(told);
	error.body = body;
	throw error;
}

const mostEvents = 200;

function keepEvents(g, body) {
	const known = g.lastEvent || 0;
	const anew = body.last < known; // the gateway has started again
	if (anew) g.events = [];
	const fresh = body.events.filter(event => anew || event.number > known);
	g.lastEvent = anew ? 0 : body.last || 0; // then all are asked for
	g.events = g.events.concat(fresh).slice(-mostEvents);
}

// What all gateways tell, together.

const answering = () => state.gateways.filter(g => g.answers.status);
const statusOf = g => g.answers.status;
const byItself = g => statusOf(g).redis && statusOf(g).source !== 'redis';

// history sums what the gateways counted, the last step last. The step that is under
// way counts as what it comes to at this rate, once a third of it is over.
function history() {
	const told = state.gateways.filter(g => g.answers.history);
	if (!told.length) return null;
	const seconds = told[0].answers.history.step_seconds;
	const counts = told.flatMap(g => g.answers.history.series.map(one => one.counts.length));
	const steps = Math.min(Math.round(900 / seconds), Math.max(Math.round(180 / seconds), ...counts)); // 3 to 15 minutes
	const series = new Map();
	let end = 0;
	for (const g of told) {
		const body = g.answers.history;
		if (body.step_seconds !== seconds) continue;
		const counted = (Date.parse(body.at) - Date.parse(body.from)) / 1000 / seconds;
		const part = counted - Math.ceil(counted) + 1; // of the last step
		const left = part < 0.3 ? 1 : 0; // out
		const late = Math.max(0, Math.floor((Date.now() - g.at.history - 2 * every.history) / 1000 / seconds));
		end = Math.max(end, g.at.history + (late + (left ? -part : 1 - part)) * seconds * 1000);
		for (const { outcome, source, counts } of body.series) {
			const key = outcome + ' ' + source;
			const sums = series.get(key) || { outcome, source, counts: new Array(steps).fill(0) };
			series.set(key, sums);
			for (let i = 0; i < counts.length - left; i++) {
				const at = steps - late - counts.length + left + i;
				if (at >= 0 && at < steps) sums.counts[at] += i === counts.length - 1 ? counts[i] / part : counts[i];
			}
		}
	}
	return { seconds, steps, end, series: [...series.values()] };
}

// perSecond sums the series that are picked: one value for each step.
function perSecond(past, pick) {
	const sums = new Array(past.steps).fill(0);
	for (const one of past.series) {
		if (pick(one)) one.counts.forEach((n, i) => { sums[i] += n / past.seconds; });
	}
	return sums;
}

const lately = 2; // steps that the numbers and the sentence are of

// recent is the mean of the last steps.
function recent(values, steps = 1) {
	const last = values.slice(-steps);
	return last.reduce((sum, n) => sum + n, 0) / Math.max(1, last.length);
}

// topOf sums the buckets that the gateways name.
function topOf(call, count) {
	const all = new Map();
	for (const g of state.gateways) {
		for (const bucket of g.answers[call] ? g.answers[call].buckets : []) {
			const key = JSON.stringify([bucket.key, bucket.route]);
			const sum = all.get(key) || { ...bucket, id: key, total: 0, most: 0, of: g };
			const n = bucket[count] || 0;
			sum.total += n;
			if (n > sum.most) [sum.most, sum.of] = [n, g];
			all.set(key, sum);
		}
	}
	return [...all.values()].sort((a, b) => b.total - a.total).slice(0, 10);
}

// redisNodes lists the servers of Redis by what all gateways say of them.
function redisNodes() {
	const nodes = new Map();
	for (const g of answering()) {
		for (const node of statusOf(g).redis ? isList(statusOf(g).redis.nodes) : []) {
			const sum = nodes.get(node.address) || { address: node.address, seen: 0, ill: 0, connections: 0, since: null, error: null };
			nodes.set(node.address, sum);
			sum.seen++;
			sum.connections += node.connections;
			const error = node.last_error;
			if (error && (!sum.error || error.at > sum.error.at)) sum.error = error;
			if (node.breaker === 'open' || node.breaker === 'half-open' || node.connections === 0 && byItself(g)) {
				sum.ill++;
				const since = node.since || error && error.at;
				if (since && (!sum.since || since < sum.since)) sum.since = since;
			}
		}
	}
	return [...nodes.values()];
}

// What is wrong, the worst first. A finding is a sentence; a cause that passes by
// itself counts when it has lasted.

function findings() {
	const list = [];
	const add = (level, text) => list.push({ level, text });
	const seen = answering();
	const fresh = seen.filter(g => !g.failed.status);
	findLost(add, seen);
	if (fresh.length) {
		findRedis(add, fresh);
		findIgnorance(add, fresh);
		findRules(add, fresh);
		findRegions(add, fresh);
		findFleet(add, fresh);
		findSurge(add);
		findRows(add, fresh);
		findMemory(add, fresh);
	}
	findCalls(add);
	return list.sort((a, b) => (a.level === 'bad' ? 0 : 1) - (b.level === 'bad' ? 0 : 1));
}

// lasts reports whether something has been so for some seconds.
function lasts(name, is, seconds) {
	if (!is) {
		state.first.delete(name);
		return false;
	}
	if (!state.first.has(name)) state.first.set(name, Date.now());
	return Date.now() - state.first.get(name) >= seconds * 1000;
}

const everyOne = all => all.length === 1 ? 'the gateway' : all.length === 2 ? 'both gateways' : 'all ' + all.length + ' gateways';
const ofAll = (some, all) => some.length === all.length ? everyOne(all) : some.length + ' of ' + all.length + ' gateways';
const plural = (some, one, more) => some.length === 1 ? one : more;
const nameList = some => some.slice(0, 3).map(g => g.name).join(', ') + (some.length > 3 ? ' and ' + (some.length - 3) + ' more' : '');

function findLost(add, seen) {
	if (state.lost) {
		add('bad', 'This page has not reached its command since ' + clock(state.lost, true) + ': caddy rate-limit page has ended, or the tunnel is cut. What is shown is that old');
		return;
	}
	const gone = state.gateways.filter(g => g.failed.status);
	if (!gone.length) return;
	const { since, text } = gone[0].failed.status;
	const same = gone.every(g => g.failed.status.text === text);
	const shown = gone.filter(g => g.answers.status);
	const old = shown.length ? '; what is shown of ' + plural(gone, 'it', 'them') + ' is from ' + clock(shown[0].at.status, true) : '';
	const who = gone.length === state.gateways.length && gone.length > 1 ? 'None of ' + gone.length + ' gateways has' :
		plural(gone, 'Gateway ' + nameList(gone) + ' has', gone.length + ' of ' + state.gateways.length + ' gateways have');
	add('bad', who + ' not told ' + plural(gone, 'its', 'their') + ' status since ' + clock(since, true) + ' (' +
		(gone.length > 1 && gone.length < state.gateways.length ? nameList(gone) + ': ' : '') + (same ? text : text + ', and other reasons') + ')' + old);
}

// What a node's last error says of it.
const reasons = {
	timeout: 'does not answer', wait: 'does not answer in time', connection: 'does not answer', breaker_open: 'does not answer',
	oom: 'has no memory left', readonly: 'takes no writes: it is a replica', loading: 'is loading its data', noauth: 'refuses the password',
	noperm: 'does not allow what is needed', clusterdown: 'says that its cluster is down',
};
const fallbacks = { allow: 'let every request pass', deny: 'refuse every request' };
const fallbackOne = { allow: 'lets every request pass', deny: 'refuses every request' };

function findRedis(add, fresh) {
	const alone = fresh.filter(g => byItself(g) && (statusOf(g).deciding || 'shared') === 'shared');
	const ill = redisNodes().filter(node => node.ill);
	for (const node of ill) {
		const what = node.error && (reasons[node.error.reason] || 'fails (' + node.error.reason + ')') || 'is not reached';
		const since = node.since ? ' since ' + clock(node.since) : '';
		const some = node.ill < fresh.length && node.ill !== alone.length ? ' to ' + node.ill + ' of ' + fresh.length + ' gateways' : '';
		let then = '; its tenants have their share of each gateway';
		if (alone.length) {
			const word = statusOf(alone[0]).fallback;
			then = '; ' + ofAll(alone, fresh) + ' ' + plural(alone, fallbackOne[word] || 'decides by itself', fallbacks[word] || 'decide by themselves');
		}
		add('bad', 'Redis ' + node.address + ' ' + what + (/answer$/.test(what) ? some : '') + since + then);
	}
	if (alone.length && !ill.length) add('bad', ofAll(alone, fresh) + ' ' + plural(alone, 'decides by itself', 'decide by themselves') + ': Redis is not reached');
}

const ignorance = {
	rules_unknown: 'the rules are not known yet', share_unknown: 'the share of the region is not known',
	share_lapsed: 'the share of the region is too old', share_given_back: 'the share of the region was given back',
};

function findIgnorance(add, fresh) {
	for (const [word, text] of Object.entries(ignorance)) {
		const some = fresh.filter(g => statusOf(g).deciding === word);
		if (lasts(word, some.length > 0, 3)) add('bad', sentence(ofAll(some, fresh)) + ' ' + plural(some, 'decides by itself', 'decide by themselves') + ': ' + text);
	}
}

const sentence = text => text.charAt(0).toUpperCase() + text.slice(1);

function findRules(add, fresh) {
	const failing = fresh.filter(g => statusOf(g).rules && statusOf(g).rules.failures > 0);
	if (lasts('rules failing', failing.length > 0, 5)) {
		const rules = statusOf(failing[0]).rules;
		const since = rules.last_success ? ' since ' + clock(rules.last_success) : '';
		add('bad', 'PostgreSQL cannot be read by ' + ofAll(failing, fresh) + since + ': changes of rules are not in force (' + (rules.last_error || 'no reason was told') + ')');
	}
	const stale = fresh.filter(g => statusOf(g).rules && statusOf(g).rules.age_seconds > 120 && !failing.includes(g));
	if (stale.length) add('bad', 'The rules are ' + span(statusOf(stale[0]).rules.age_seconds) + ' old on ' + ofAll(stale, fresh) + ' (' + nameList(stale) + ')');
	const stored = fresh.filter(g => statusOf(g).rules && statusOf(g).rules.state === 'stored');
	if (stored.length && !failing.length) add('warn', sentence(ofAll(stored, fresh)) + ' still ' + plural(stored, 'has', 'have') + ' the rules of an earlier run');
	findDifference(add, fresh);
	const polling = fresh.filter(g => statusOf(g).rules && statusOf(g).rules.poll_only);
	if (lasts('polling', polling.length > 0, 60)) add('warn', 'Changes of rules are not announced to ' + ofAll(polling, fresh) + ', and take up to the refresh interval: ' + statusOf(polling[0]).rules.poll_only);
}

// ruleSets are the gateways by the hash of their rules, the most first.
function ruleSets(fresh) {
	const sets = new Map();
	for (const g of fresh) {
		const hash = statusOf(g).rules && statusOf(g).rules.hash;
		if (hash) sets.set(hash, (sets.get(hash) || []).concat(g));
	}
	return [...sets.entries()].sort((a, b) => b[1].length - a[1].length);
}

function findDifference(add, fresh) {
	const sets = ruleSets(fresh);
	if (!lasts('rules differ', sets.length > 1, 10)) return;
	if (sets[0][1].length === sets[1][1].length) {
		add('bad', 'The gateways have ' + sets.length + ' different sets of rules');
		return;
	}
	const others = sets.slice(1).flatMap(set => set[1]);
	add('bad', sentence(nameList(others)) + plural(others, ' has', ' have') + ' other rules than the other ' + sets[0][1].length + ' gateways');
}

function findRegions(add, fresh) {
	for (const g of fresh) {
		const region = statusOf(g).region;
		if (!region) continue;
		if (region.state === 'lapsed' || region.state === 'unknown') {
			add('bad', 'Region ' + region.name + ' gives its safe share only at ' + g.name + ': its share is ' + (region.state === 'lapsed' ? 'too old' : 'not known') + (region.last_error ? ' (' + region.last_error + ')' : ''));
		} else if (region.share < 0.01) {
			add('bad', 'Region ' + region.name + ' has no share and refuses nearly everything at ' + g.name);
		} else if (region.last_error) {
			add('warn', 'The shares of region ' + region.name + ' cannot be read at ' + g.name + ': ' + region.last_error);
		}
	}
}

function findFleet(add, fresh) {
	const uncounted = fresh.filter(g => statusOf(g).fleet && statusOf(g).fleet.heartbeat_age_seconds > 15);
	if (uncounted.length && !uncounted.every(byItself)) add('warn', sentence(ofAll(uncounted, fresh)) + ' ' + plural(uncounted, 'is', 'are') + ' not counted: the heartbeat does not reach Redis');
	const told = fresh.map(g => statusOf(g).fleet).filter(fleet => fleet && fleet.disagree > 0);
	if (lasts('fleet disagrees', told.length > 0 && ruleSets(fresh).length < 2, 10)) add('bad', many(Math.max(...told.map(fleet => fleet.disagree)), 'gateway') + ' of the fleet, not on this page, ' + 'have other rules than the rest');
}

// A surge: over 5 requests a second, and over a fifth of all, are refused.
function findSurge(add) {
	const past = history();
	if (!past) return;
	const mean = pick => recent(perSecond(past, pick), lately);
	const all = mean(() => true);
	const refused = mean(one => one.outcome === 'refused');
	const [most] = topOf('refused', 'refused');
	if (refused > 5 && refused > 0.2 * all) {
		add('warn', percent(refused / all) + ' of all requests are refused, ' + number(refused) + ' a second' + ofWhom(most, 'refused'));
	}
	const away = [['denied', 'are denied (403)'], ['unauthorized', 'have no tenant that is known (401)'], ['invalid', 'are invalid (400)'], ['left', 'left before they had an answer (499)']];
	for (const [outcome, text] of away) {
		const n = mean(one => one.outcome === outcome);
		if (n > 5 && n > 0.2 * all) add('warn', percent(n / all) + ' of all requests ' + text + ', ' + number(n) + ' a second');
	}
}

function ofWhom(most, call) {
	const total = topOf(call, call).reduce((sum, bucket) => sum + bucket.total, 0);
	if (!most || most.total < total / 2) return ': many tenants';
	return ': ' + (most.total > 0.9 * total ? 'nearly all of them' : 'most of them') + ' by ' + tenantText(most.tenant) + ', on ' + most.route;
}

function findRows(add, fresh) {
	const rejected = Math.max(0, ...fresh.map(g => statusOf(g).rules ? statusOf(g).rules.rejected : 0));
	if (rejected) {
		const [row] = badRows(fresh);
		const first = row ? ': row ' + row.id + (row.route ? ' (' + row.route + ')' : '') + ': ' + row.reason : '';
		add('warn', many(rejected, 'row') + ' of the table of rules ' + (rejected === 1 ? 'is no rule and does' : 'are no rules and do') + ' not count' + first);
	}
	const stray = Math.max(0, ...fresh.map(g => statusOf(g).rules_for_no_route || 0));
	if (stray) add('warn', many(stray, 'rule') + ' ' + (stray === 1 ? 'is' : 'are') + ' for a route that no handler has: a slip, or for other gateways');
}

// badRows are those rows of the table that are no rules.
function badRows(fresh) {
	const rows = new Map();
	for (const g of fresh) {
		for (const row of statusOf(g).rules ? isList(statusOf(g).rules.rejections) : []) rows.set(row.id, row);
	}
	return [...rows.values()];
}

function findMemory(add, fresh) {
	for (const g of fresh) {
		const { max_keys: most, keys } = statusOf(g).memory;
		for (const [store, n] of Object.entries(keys || {})) {
			if (most > 0 && n >= 0.9 * most) add('warn', 'The memory of ' + g.name + ' for ' + store + ' buckets is nearly full: ' + number(n) + ' of ' + number(most));
		}
	}
}

function findCalls(add) {
	for (const call of ['history', 'refused', 'asking', 'events']) {
		const failing = state.gateways.filter(g => g.failed[call] && !g.failed.status);
		if (!failing.length) continue;
		const [g] = failing;
		const path = '/rate_limit/' + calls[call](g).split('?')[0];
		const old = g.at[call] ? '; what is shown of it is from ' + clock(g.at[call], true) : '';
		add('warn', path + ' failed at ' + nameList(failing) + ' since ' + clock(g.failed[call].since, true) + ' (' + g.failed[call].text + ')' + old);
	}
}

// Showing.

let drawing = false;

// draw shows what is known, once a frame.
function draw() {
	if (drawing) return;
	drawing = true;
	requestAnimationFrame(() => {
		drawing = false;
		drawVerdict();
		drawNumbers();
		drawCharts();
		drawTables();
		drawChoices();
	});
}

function drawVerdict() {
	const seen = answering();
	const tried = state.gateways.some(g => g.failed.status);
	if (!seen.length && !tried && !state.lost) return;
	const list = findings();
	const level = list.length ? list[0].level : '';
	$('top').className = level;
	setText($('verdict'), list.length ? list[0].text : 'All is well: ' + wellText(seen));
	showList($('findings'), list.slice(1));
	document.title = (level === 'bad' ? '✗ ' : level === 'warn' ? '! ' : '✓ ') + (list.length ? list[0].text.slice(0, 60) : 'Rate limits');
	const oldest = Math.min(...seen.filter(g => !g.failed.status).map(g => g.at.status));
	const old = Number.isFinite(oldest) ? 'as of ' + (Date.now() - oldest < 6000 ? clock(oldest, true) : age(oldest) + ' ago, ' + clock(oldest, true)) : 'nobody answers';
	setText($('asof'), (state.paused ? 'Paused, ' : '') + old + ' · ' + many(seen.length, 'gateway'));
}

function wellText(seen) {
	const status = statusOf(seen[0]);
	const decides = status.redis ? 'Redis decides' : plural(seen, 'it decides by itself, as configured', 'they decide by themselves, as configured');
	const rules = status.rules ? ', ' + many(status.rules.rules, 'rule') + ' in force' : '';
	return everyOne(seen) + plural(seen, ' answers', ' answer') + ', ' + decides + rules;
}

// showList shows findings, and leaves alone what is there already.
function showList(node, list) {
	while (node.children.length > list.length) node.lastChild.remove();
	list.forEach((finding, i) => {
		const item = node.children[i] || node.appendChild(el('li'));
		item.className = finding.level;
		setText(item, finding.text);
	});
}

function drawNumbers() {
	const seen = answering();
	if (!seen.length) return;
	const past = history();
	const told = seen.map(g => statusOf(g).rules).filter(Boolean);
	const items = [];
	if (past) {
		const all = recent(perSecond(past, () => true), lately);
		const refused = recent(perSecond(past, one => one.outcome === 'refused'), lately);
		items.push(['requests a second', number(all), ''], ['refused a second', number(refused), all ? percent(refused / all) : '', refused > 5 && refused > 0.2 * all && 'warn']);
	}
	const withRedis = seen.filter(g => statusOf(g).redis);
	const alone = withRedis.filter(byItself);
	if (withRedis.length) items.push(['decide through Redis', withRedis.length - alone.length + '', 'of ' + withRedis.length, alone.length && 'bad']);
	const gone = state.gateways.filter(g => g.failed.status);
	items.push(['gateways answer', state.gateways.length - gone.length + '', 'of ' + state.gateways.length, gone.length && 'bad']);
	if (told.length) {
		const sets = ruleSets(seen).length;
		items.push(['rules in force', number(told[0].rules), sets > 1 ? sets + ' sets' : '', sets > 1 && 'bad']);
		const oldest = Math.max(...told.map(rules => rules.age_seconds || 0));
		items.push(['age of the rules', span(Math.round(oldest)), '', oldest > 120 && 'bad']);
		const rejected = Math.max(...told.map(rules => rules.rejected));
		items.push(['bad rows', number(rejected), '', rejected && 'warn']);
	}
	const list = $('numbers');
	while (list.children.length > items.length) list.lastChild.remove();
	items.forEach(([name, value, more, level], i) => {
		const item = list.children[i] || list.appendChild(el('div', {}, el('dt'), el('dd', {}, el('span'), ' ', el('small'))));
		item.className = level || '';
		setText(item.querySelector('dt'), name);
		setText(item.querySelector('span'), value);
		setText(item.querySelector('small'), more);
	});
}

// Charts: what the gateways counted, one column a step, stacked.

const outcomes = [
	['granted', 'calm'], ['unlimited', 'calm2'], ['allowed', 'calm3'], ['shadow', 'violet'], ['refused', 'amber'],
	['denied', 'brown'], ['unauthorized', 'brown'], ['invalid', 'red'], ['left', 'red'],
];

function drawCharts() {
	const past = history();
	if (!past) {
		if (answering().length && state.gateways.every(g => g.missing.has('history') || g.failed.status)) {
			for (const id of ['outcomes', 'sources']) setText($(id).querySelector('.when'), 'is not counted by a gateway of this version');
		}
		return;
	}
	chart($('outcomes'), past, outcomes.map(([name, color]) => ({ name, color, values: perSecond(past, one => one.outcome === name) })));
	const redis = answering().some(g => statusOf(g).redis);
	chart($('sources'), past, [
		{ name: 'redis', color: 'calm', values: perSecond(past, one => one.source === 'redis') },
		{ name: 'prefetch', color: 'calm2', values: perSecond(past, one => one.source === 'prefetch') },
		{ name: 'remembered', color: 'calm3', values: perSecond(past, one => one.source === 'remembered') },
		{ name: redis ? 'each gateway by itself' : 'the gateway', color: redis ? 'red' : 'calm', values: perSecond(past, one => one.source === 'local') },
		...answering().some(g => statusOf(g).source === 'allow') ? [{ name: 'nobody', color: 'amber', values: perSecond(past, one => one.outcome === 'allowed') }] : [],
	]);
}

const frame = { height: 190, left: 46, top: 8, bottom: 18 };

// chart draws layers above each other.
function chart(figure, past, layers) {
	const width = Math.max(200, Math.floor(figure.clientWidth));
	const totals = past.series.length ? layers[0].values.map((_, i) => layers.reduce((sum, layer) => sum + layer.values[i], 0)) : [];
	const top = niceTop(Math.max(1e-9, ...totals));
	const used = layers.filter(layer => layer.values.some(n => n > top / 300)); // less is no line on a screen
	const x = i => frame.left + (width - frame.left) * i / past.steps;
	const y = n => frame.top + (frame.height - frame.top - frame.bottom) * (1 - n / top);
	const picture = svg('svg', { viewBox: `0 0 ${width} ${frame.height}`, role: 'img', 'aria-label': label(used, past) });
	for (const part of [0, 0.5, 1]) {
		picture.append(svg('line', { class: 'grid', x1: frame.left, x2: width, y1: y(top * part), y2: y(top * part) }),
			svg('text', { x: frame.left - 6, y: y(top * part) + 4, 'text-anchor': 'end' }, part ? number(top * part) + (part === 1 ? '/s' : '') : '0'));
	}
	let below = new Array(past.steps).fill(0);
	for (const layer of used) {
		const above = below.map((n, i) => n + layer.values[i]);
		picture.append(svg('path', { class: 'c-' + layer.color, d: area(below, above, x, y) }));
		below = above;
	}
	drawTimes(picture, past, x);
	drawMarks(picture, past, x);
	const at = state.cursor === null ? past.steps - 1 : Math.max(0, past.steps - 1 - state.cursor);
	if (state.cursor !== null) picture.append(svg('line', { class: 'cursor', x1: x(at + 0.5), x2: x(at + 0.5), y1: frame.top, y2: frame.height - frame.bottom }));
	const before = figure.querySelector('svg');
	if (before) before.replaceWith(picture);
	else figure.append(picture, el('ul', { class: 'legend' }));
	setText(figure.querySelector('.when'), state.cursor === null ? 'a second, over the last ' + Math.round(past.steps * past.seconds / 60) + ' minutes' : 'at ' + clock(timeOf(past, at), true));
	drawLegend(figure.querySelector('.legend'), used, at);
}

const label = (used, past) => used.map(layer => layer.name + ' ' + number(recent(layer.values)) + ' a second').join(', ') || 'nothing in ' + span(past.steps * past.seconds);

function niceTop(most) {
	let step = 10 ** Math.floor(Math.log10(most));
	if (step < 1) step = 1;
	return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map(n => n * step).find(n => n >= most) || 10 * step;
}

// area is the path of a layer, in steps: a count is of a whole step.
function area(below, above, x, y) {
	let path = '', back = '';
	for (let i = 0; i < above.length; i++) {
		path += (i ? 'L' : 'M') + x(i).toFixed(1) + ' ' + y(above[i]).toFixed(1) + 'H' + x(i + 1).toFixed(1);
		const j = above.length - 1 - i;
		back += 'L' + x(j + 1).toFixed(1) + ' ' + y(below[j]).toFixed(1) + 'H' + x(j).toFixed(1);
	}
	return path + back + 'Z';
}

const timeOf = (past, step) => past.end - (past.steps - step - 0.5) * past.seconds * 1000;

function drawTimes(picture, past, x) {
	const begin = past.end - past.steps * past.seconds * 1000;
	const every = past.end - begin > 400000 ? 180000 : 60000;
	for (let time = Math.ceil(begin / every) * every; time < past.end; time += every) {
		const at = x((time - begin) / 1000 / past.seconds);
		if (at > frame.left + 14) picture.append(svg('text', { x: at, y: frame.height - 4, 'text-anchor': 'middle' }, clock(time)));
	}
}

// drawMarks shows when the state of something has changed, so that the eye finds the
// moment in both charts.
function drawMarks(picture, past, x) {
	const begin = past.end - past.steps * past.seconds * 1000;
	let last = -10;
	for (const event of allEvents().reverse()) {
		if (!marked.has(event.name)) continue;
		const at = x((Date.parse(event.at) - begin) / 1000 / past.seconds);
		if (!(at >= frame.left) || at - last < 3) continue;
		last = at;
		picture.append(svg('line', { class: marked.get(event.name) ? 'event' : 'event calm', x1: at, x2: at, y1: frame.top, y2: frame.height - frame.bottom }));
	}
}

function drawLegend(list, used, at) {
	while (list.children.length > used.length) list.lastChild.remove();
	used.forEach((layer, i) => {
		const item = list.children[i] || list.appendChild(el('li', {}, el('i'), el('span'), el('b')));
		item.firstChild.className = 'c-' + layer.color;
		setText(item.children[1], layer.name);
		setText(item.lastChild, number(layer.values[at]));
	});
}

// point moves the cursor of both charts.
function point(step) {
	state.cursor = step;
	draw();
}

function listenToCharts() {
	for (const id of ['outcomes', 'sources']) {
		const figure = $(id);
		figure.addEventListener('pointermove', event => {
			const past = history();
			const picture = figure.querySelector('svg');
			if (!past || !picture) return;
			const box = picture.getBoundingClientRect();
			const part = (event.clientX - box.left - frame.left) / (box.width - frame.left);
			point(part < 0 || part > 1 ? null : past.steps - 1 - Math.min(past.steps - 1, Math.floor(part * past.steps)));
		});
		figure.addEventListener('pointerleave', () => point(null));
		figure.addEventListener('blur', () => point(null));
		figure.addEventListener('keydown', event => {
			const by = { ArrowLeft: 1, ArrowRight: -1 }[event.key];
			if (!by) return;
			event.preventDefault();
			const past = history();
			point(past ? Math.min(past.steps - 1, Math.max(0, (state.cursor === null ? -1 : state.cursor) + by)) : null);
		});
	}
}

// Tables. A row stays the same element, so that who is at a button of it stays there.

function table(id, columns, none) {
	const body = el('tbody');
	const head = el('tr', {}, ...columns.map(([name, css]) => el('th', { scope: 'col', class: css }, name)));
	const whole = el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, head), body));
	const empty = el('p', { class: 'empty' }, none);
	$(id).append(whole, empty);
	const known = new Map();
	return (rows, text) => {
		whole.hidden = !rows.length;
		empty.hidden = !!rows.length;
		setText(empty, text || none);
		const focused = document.activeElement;
		const keys = new Set(rows.map(row => row.key));
		for (const [key, node] of known) {
			if (keys.has(key)) continue;
			node.remove();
			known.delete(key);
		}
		rows.forEach((row, i) => {
			let node = known.get(row.key);
			if (!node) known.set(row.key, node = newRow(row, columns));
			if (body.children[i] !== node) body.insertBefore(node, body.children[i] || null);
			node.row = row;
			node.className = row.css || '';
			row.cells.forEach((cell, j) => fill(node.children[j], cell, columns[j][1]));
		});
		if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
	};
}

function newRow(row, columns) {
	const node = el('tr', {}, ...row.cells.map((_, i) => el('td', { class: columns[i][1] })));
	if (row.actions) {
		const buttons = row.actions.map(([name, text, act]) => el('button', { type: 'button', 'aria-label': text, onclick: () => act(node.row) }, name));
		node.append(el('td', { class: 'act' }, ...buttons.flatMap(button => [button, ' '])));
	}
	return node;
}

// fill sets a cell, which is a text or {text, css, title}.
function fill(node, cell, css) {
	const { text, css: own, title } = typeof cell === 'object' && cell !== null ? cell : { text: String(cell) };
	setText(node, text);
	node.className = [css, own].filter(Boolean).join(' ');
	if (title) node.title = title;
	else node.removeAttribute('title');
}

const show = {};

function makeTables() {
	show.gateways = table('gateways', [['gateway', 't'], ['decides', ''], ['requests/s', 'n'], ['refused/s', 'n'], ['Redis', ''], ['rules', 'n'], ['old', 'n'],
		['rule set', 'wide'], ['share of limits', 'wide'], ['keys in memory', 'n wide'], ['version', 'wide t']], 'No gateway has answered yet.');
	show.refused = table('refused', [['refused', 'n'], ['tenant', 't bidi'], ['route', 't'], ['', 'act']], 'Nobody.');
	show.asking = table('asking', [['requests', 'n'], ['tenant', 't bidi'], ['route', 't'], ['', 'act']], 'Nobody.');
	show.redis = table('redis', [['node', 't'], ['breaker', ''], ['since', ''], ['connections', 'n'], ['last error', 'w']], 'There is no Redis: each gateway decides in its memory.');
	show.rows = table('rules', [['bad row', 'n'], ['route', 't'], ['reason', 'w']], 'Every row of the table is a rule.');
	show.events = table('events', [['time', ''], ['gateway', 't wide'], ['event', 'w']], 'Nothing has changed its state.');
}

function drawTables() {
	const seen = answering();
	show.gateways(state.gateways.filter(g => g.answers.status || g.failed.status).map(gatewayRow));
	for (const [id, call, count] of [['refused', 'refused', 'refused'], ['asking', 'asking', 'requests']]) {
		const missing = state.gateways.length && state.gateways.every(g => g.missing.has(call) || g.failed.status);
		show[id](topOf(call, count).map(bucketRow), missing ? 'Gateways of this version do not tell.' : undefined);
	}
	show.redis(redisNodes().map(node => ({
		key: node.address,
		cells: [node.address, node.ill ? { text: 'open at ' + node.ill + ' of ' + node.seen, css: 'bad' } : 'closed', node.since ? clock(node.since, true) : '–', number(node.connections),
			node.error ? [node.error.reason, node.error.words].filter(Boolean).join(': ') + ', ' + clock(node.error.at, true) : '–'],
	})));
	const told = seen.some(g => statusOf(g).rules);
	show.rows(badRows(seen).map(row => ({ key: row.id, cells: [{ text: row.id, css: 'warn' }, row.route || '–', row.reason] })), told ? undefined : 'There is no table: all rules are in the configuration.');
	$('refresh').hidden = !told;
	show.events(allEvents().slice(0, 30).map(event => ({
		key: event.id, cells: [clock(event.at, true), event.of.name, { text: eventText(event), css: marked.get(event.name) ? 'bad' : '' }],
	})));
	setText($('foot'), 'Times are those of this browser (' + Intl.DateTimeFormat().resolvedOptions().timeZone + '). Keys: / tenant, n show tenants, p pause, ← → in a chart.');
}

function gatewayRow(g) {
	const failed = g.failed.status;
	const status = statusOf(g);
	if (!status) return { key: g.number, cells: [g.name, { text: failed.text, css: 'bad' }, '', '', '', '', '', '', '', '', ''] };
	const nodes = status.redis ? isList(status.redis.nodes) : [];
	const open = nodes.filter(node => node.breaker === 'open' || node.breaker === 'half-open').length;
	const rules = status.rules;
	const sets = ruleSets(answering());
	const other = rules && sets.length > 1 && sets[0][0] !== rules.hash;
	const keys = Object.values(status.memory.keys || {}).reduce((sum, n) => sum + n, 0);
	const alone = byItself(g) || !['shared', 'alone', undefined].includes(status.deciding);
	return {
		key: g.number, css: failed ? 'old' : '',
		cells: [
			g.name,
			failed ? { text: 'no answer for ' + age(failed.since) + ': ' + failed.text, css: 'bad' } : alone ? { text: aloneText(status), css: 'bad' } : status.source === 'redis' ? 'Redis' : 'alone',
			...ownRates(g),
			!nodes.length ? '–' : open ? { text: open + ' of ' + nodes.length + ' open', css: 'bad' } : 'well',
			rules ? number(rules.rules) + '' : '–',
			rules && rules.age_seconds !== undefined ? { text: span(rules.age_seconds), css: rules.age_seconds > 120 ? 'bad' : '' } : '–',
			rules && rules.hash ? { text: rules.hash.slice(0, 8), css: other ? 'bad' : '', title: rules.hash } : '–',
			status.region ? percent(status.region.share) + ' (' + status.region.name + ')' : status.redis ? '1 of ' + status.instances + ' without Redis' : 'all',
			number(keys),
			status.version,
		],
	};
}

const aloneText = status => status.deciding && status.deciding !== 'shared' ? status.deciding.replaceAll('_', ' ') : { allow: 'nobody', deny: 'refuses all' }[status.source] || 'by itself';

// ownRates are the requests of one gateway, and those that it refused, in the last
// step that is over.
function ownRates(g) {
	const body = g.answers.history;
	if (!body) return ['–', '–'];
	const last = pick => body.series.filter(pick).reduce((sum, one) => sum + (one.counts.at(-2) || 0), 0) / body.step_seconds;
	return [number(last(() => true)), number(last(one => one.outcome === 'refused'))];
}

function bucketRow(bucket) {
	return {
		key: bucket.id, bucket,
		cells: [number(bucket.total), { text: tenantText(bucket.tenant), title: state.names ? bucket.tenant : '' }, bucket.route],
		actions: [['Why?', 'Why was it refused?', row => explainBucket(row.bucket)], ['Reset …', 'Reset this bucket', row => resetBucket(row.bucket)]],
	};
}

// Events of state: those that make a mark in the charts, and whether they are bad.
const marked = new Map([
	['rate_limit_breaker_opened', true], ['rate_limit_breaker_closed', false], ['rate_limit_redis_unreached', true], ['rate_limit_redis_reached', false],
	['rate_limit_redis_unfit', true], ['rate_limit_rules_failed', true], ['rate_limit_rules_recovered', false], ['rate_limit_rules_loaded', false],
	['rate_limit_rules_stale', true], ['rate_limit_shares_lapsed', true], ['rate_limit_shares_failed', true], ['rate_limit_shares_recovered', false],
]);

// allEvents are those of all gateways, the newest first.
function allEvents() {
	return state.gateways.flatMap(g => g.events.map(event => ({ ...event, of: g, id: g.number + '/' + event.number })))
		.sort((a, b) => a.at < b.at ? 1 : a.at > b.at ? -1 : b.number - a.number);
}

function eventText(event) {
	const data = event.data && typeof event.data === 'object' ? Object.entries(event.data) : [];
	return event.name.replace(/^rate_limit_/, '').replaceAll('_', ' ') + (data.length ? ': ' : '') +
		data.map(([key, value]) => key + ' ' + (typeof value === 'string' ? value : JSON.stringify(value))).join(', ');
}

// The question about a tenant.

function drawChoices() {
	const routes = [...new Set(answering().flatMap(g => isList(statusOf(g).routes)))].sort();
	options($('route'), [...routes.map(route => [route, route]), ...(routes.length > 1 ? [['', 'every route']] : [])]);
	options($('gateway'), state.gateways.map(g => [String(g.number), g.name]));
	$('gateway').parentElement.hidden = state.gateways.length < 2;
	for (const id of ['explain', 'reset']) $(id).disabled = !routes.length;
}

function options(select, list) {
	if (select.options.length === list.length && list.every(([value], i) => select.options[i].value === value)) return;
	const chosen = select.options.length ? select.value : null;
	select.replaceChildren(...list.map(([value, text]) => el('option', { value }, text)));
	if (list.some(([value]) => value === chosen)) select.value = chosen;
}

// subject is whom the form names.
function subject() {
	const form = new URLSearchParams();
	if ($('route').value) form.set('route', $('route').value);
	const [tenant, ip] = [$('tenant').value, $('ip').value.trim()];
	if (tenant || !ip) form.set('tenant', tenant);
	if (ip) form.set('ip', ip);
	return { form, who: tenant ? tenantText(tenant) : ip || 'a request without a tenant', route: $('route').value || 'every route', of: state.gateways[Number($('gateway').value) || 0] };
}

const bucketSubject = bucket => ({ form: new URLSearchParams({ key: bucket.key, route: bucket.route }), who: tenantText(bucket.tenant), route: bucket.route, of: bucket.of });

const explainBucket = bucket => explain(bucketSubject(bucket));
const resetBucket = bucket => reset(bucketSubject(bucket));

function say(...nodes) {
	$('answer').replaceChildren(...nodes);
	$('answer').scrollIntoView({ block: 'nearest' });
}

const failure = (call, of, error) => el('p', { class: 'bad said' }, call + ' at ' + of.name + ' failed: ' + error.message);

async function explain(about, before = []) {
	if (!about.of) return;
	say(...before, el('p', { class: 'empty' }, 'Asking ' + about.of.name + ' …'));
	try {
		const body = await fetchJSON(about.of, 'explain', 'POST', about.form);
		say(...before, ...isList(body.handlers).flatMap(handler => explained(handler, { ...about, route: handler.route || about.route })));
	} catch (error) {
		say(...before, failure('explain', about.of, error));
	}
}

function explained(handler, about) {
	const next = handler.next || {};
	const winner = isList(handler.candidates).find(candidate => candidate.wins);
	const rows = isList(handler.candidates).filter(candidate => candidate.exists);
	const lines = bucketLines(handler.bucket);
	return [
		el('p', { class: 'said' }, 'The next request of ', el('span', { class: 'bidi' }, about.who), ' on ' + about.route + ' ' + nextText(next) + '.'),
		el('p', {}, winner ? 'What counts is ' + ruleText(handler.rule, winner) + '.' : 'No rule is asked for.', handler.note ? ' ' + sentence(handler.note) + '.' : ''),
		...lines.map(line => el('p', { class: 'quiet' }, line)),
		el('table', {}, el('thead', {}, el('tr', {}, ...['from', 'tenant', 'route', 'rate', 'options'].map(name => el('th', { scope: 'col' }, name)))),
			el('tbody', {}, ...rows.map(candidate => el('tr', { class: candidate.wins ? 'wins' : '' },
				el('td', {}, candidate.from), el('td', { class: 'bidi' }, candidate.tenant ? tenantText2(candidate.tenant) : '–'), el('td', {}, candidate.route || '–'),
				el('td', {}, rate(candidate.rule)), el('td', {}, optionText(candidate.rule)))))),
	];
}

// tenantText2 is the tenant of a rule, which may be the wildcard or a plan.
const tenantText2 = tenant => tenant === '*' || tenant.startsWith('~') ? tenant : tenantText(tenant);

const statusWords = { 429: 'is refused (429)', 403: 'is denied (403)', 401: 'is refused for want of a tenant (401)', 400: 'is refused as invalid (400)' };

function nextText(next) {
	let text = statusWords[next.status] || (next.outcome === 'unknown' ? 'cannot be foreseen' : 'passes (' + next.outcome + ')');
	if (next.source && next.source !== 'none') text += ', by ' + ({ remembered: 'a remembered refusal', local: 'the gateway itself' }[next.source] || next.source);
	if (next.remaining !== undefined && next.status === 200) text += ', and leaves ' + number(next.remaining);
	if (next.retry_after !== undefined) text += '; it may come again in ' + span(next.retry_after);
	return text;
}

function ruleText(rule, winner) {
	const where = { postgres: 'the rule of the table', static: 'the rule of the configuration', handler: 'the limit of the directive', default: 'the default' }[winner.from] || winner.from;
	return where + (winner.tenant ? ' for ' + (winner.tenant === '*' ? 'every tenant' : tenantText2(winner.tenant)) : '') + (winner.route ? ' on ' + (winner.route === '*' ? 'every route' : winner.route) : '') +
		': ' + rate(rule || winner.rule) + optionText(rule || winner.rule, ', ');
}

function optionText(rule, before = '') {
	const words = rule ? [rule.algorithm, rule.mode, rule.prefetch ? 'prefetch ' + rule.prefetch : '', rule.shards > 1 ? rule.shards + ' shards' : ''].filter(Boolean) : [];
	return words.length ? before + words.join(', ') : '';
}

function bucketLines(bucket) {
	if (!bucket) return [];
	const lines = [];
	const left = one => one.error ? 'could not be asked: ' + one.error : number(one.remaining) + ' of ' + number(one.capacity) + ' left' +
		(one.retry_after_ms > 0 ? ', next in ' + span(one.retry_after_ms / 1000) : '') + (one.reset_after_ms > 0 ? ', full in ' + span(one.reset_after_ms / 1000) : '');
	if (bucket.redis) lines.push('In Redis: ' + left(bucket.redis));
	if (isList(bucket.remembered).length) lines.push('The gateway remembers the refusal for ' + span(bucket.remembered[0].for_ms / 1000));
	if (bucket.local) lines.push("In the gateway's memory: " + left(bucket.local));
	return lines;
}

// Changes: each after a question.

let pending = null; // the question that is open

// question asks, and tells whether the answer is yes. Another question says no to the
// one before.
function question(text, yes) {
	if (pending) pending(false);
	setText($('asked'), text);
	setText($('yes'), yes);
	$('question').returnValue = '';
	if (!$('question').open) $('question').showModal();
	return new Promise(done => { pending = done; });
}

// answered is told that a dialog has closed, maybe when the next is open already.
function answered() {
	if ($('question').open || !pending) return;
	const done = pending;
	pending = null;
	done($('question').returnValue === 'yes');
}

async function reset(about) {
	if (!about.of || !await question('Make the bucket of ' + about.who + ' on ' + about.route + ' full again, in Redis and at ' + about.of.name + '?', 'Reset it')) return;
	try {
		const body = await fetchJSON(about.of, 'bucket', 'DELETE', about.form);
		const done = isList(body.buckets).map(bucket => bucket.route + (bucket.redis ? ' (Redis: ' + bucket.redis + ')' : '')).join(', ');
		await explain(about, [el('p', { class: 'said' }, 'It is full again, on ' + done + '.')]);
	} catch (error) {
		say(failure('reset', about.of, error));
	}
}

async function refresh() {
	const some = answering().filter(g => statusOf(g).rules);
	if (!await question('Load the rules now, on ' + many(some.length, 'gateway') + '?', 'Load them')) return;
	say(el('p', { class: 'empty' }, 'Loading the rules …'));
	const lines = await Promise.all(some.map(async g => {
		try {
			const body = await fetchJSON(g, 'rules/refresh', 'POST');
			return el('p', {}, g.name + ': ' + many(body.rules, 'rule') + ' in force, ' + many(body.rejected, 'bad row') + (body.changed ? ', changed' : ', as before'));
		} catch (error) {
			return failure('refresh', g, error);
		}
	}));
	say(...lines);
}

// Beginning.

function press(button, on) {
	button.setAttribute('aria-pressed', String(on));
}

function setNames(on) {
	state.names = on;
	press($('names'), on);
	$('tenant').type = on ? 'text' : 'password';
	draw();
}

function setPaused(on) {
	state.paused = on;
	press($('pause'), on);
	draw();
}

function listen() {
	$('names').addEventListener('click', () => setNames(!state.names));
	$('pause').addEventListener('click', () => setPaused(!state.paused));
	$('refresh').addEventListener('click', refresh);
	$('form').addEventListener('submit', event => {
		event.preventDefault();
		explain(subject());
	});
	$('reset').addEventListener('click', () => reset(subject()));
	document.addEventListener('keydown', event => {
		if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || $('question').open) return;
		const act = { '/': () => $('tenant').focus(), n: () => setNames(!state.names), p: () => setPaused(!state.paused) }[event.key];
		if (!act) return;
		event.preventDefault();
		act();
	});
	new ResizeObserver(draw).observe(document.body);
	$('question').addEventListener('close', answered);
	listenToCharts();
}

async function begin() {
	makeTables();
	listen();
	for (;;) {
		try {
			const response = await fetch('gateways', { cache: 'no-store', signal: AbortSignal.timeout(15000) });
			const { gateways } = await response.json();
			state.gateways = gateways.map((name, number) => ({ number, name, answers: {}, at: {}, asked: {}, failed: {}, missing: new Set(), events: [], lastEvent: 0 }));
			break;
		} catch (error) {
			setText($('verdict'), 'This page does not reach its command: caddy rate-limit page has ended, or the tunnel is cut');
			await rest(2000);
		}
	}
	state.gateways.forEach(follow);
	setInterval(() => { if (!document.hidden) draw(); }, 1000);
}

begin();
