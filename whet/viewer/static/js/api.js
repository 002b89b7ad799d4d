// Requests to the viewer. What has not changed is answered with 304 and costs next to nothing.

const known = new Map();
const KEPT = 60;

export async function get(name, params = {}, signal) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") query.set(key, value);
  }
  const url = `/api/${name}?${query}`;
  const before = known.get(url);
  const headers = before ? { "If-None-Match": before.tag } : {};
  const response = await fetch(url, { headers, signal, cache: "no-store", credentials: "same-origin" });
  if (response.status === 304 && before) return { data: before.data, isNew: false };
  let data;
  try {
    data = await response.json();
  } catch {
    throw new Error(`The viewer answered with status ${response.status}.`);
  }
  if (!response.ok) throw new Error(data.error ?? `The viewer answered with status ${response.status}.`);
  known.delete(url);
  known.set(url, { tag: response.headers.get("etag"), data });
  if (known.size > KEPT) known.delete(known.keys().next().value);
  return { data, isNew: true };
}
