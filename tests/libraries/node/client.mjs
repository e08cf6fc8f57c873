// What a program with the JavaScript client does: every line that it prints is a fact to be judged.
import * as k8s from "@kubernetes/client-node";

const say = (what, value) => console.log(JSON.stringify({ what, value }));
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const namespace = process.argv[2];

const made = await core.createNamespacedConfigMap({
  namespace,
  body: { metadata: { name: "one", labels: { app: "node" } }, data: { a: "1" } },
});
say("created", made.data);

const seen = [];
const watch = new k8s.Watch(config);
const request = await watch.watch(
  `/api/v1/namespaces/${namespace}/configmaps`,
  { resourceVersion: made.metadata.resourceVersion },
  (type, object) => seen.push([type, object.metadata.name, object.data?.a]),
  () => {},
);

const list = () => core.listNamespacedConfigMap({ namespace, labelSelector: "app=node" });
const informer = k8s.makeInformer(
  config, `/api/v1/namespaces/${namespace}/configmaps?labelSelector=app%3Dnode`, list);
const informed = [];
for (const verb of ["add", "update", "delete"]) {
  informer.on(verb, (object) => informed.push([verb, object.metadata.name, object.data?.a]));
}
informer.on("error", (error) => say("informer failed", String(error)));
await informer.start();

await core.patchNamespacedConfigMap(
  { namespace, name: "one", body: [{ op: "replace", path: "/data/a", value: "2" }] });
const applied = await objects.patch(
  { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "one", namespace }, data: { b: "3" } },
  undefined, undefined, "node", true, k8s.PatchStrategy.ServerSideApply);
say("applied", applied.data);

const route = {
  apiVersion: "gateway.networking.k8s.io/v1",
  kind: "HTTPRoute",
  metadata: { name: "tea", namespace },
  spec: { rules: [{ backendRefs: [{ name: "s", port: 80 }] }] },
};
await objects.create(route);
say("route", (await objects.read(route)).spec.rules[0].matches);
try {
  await objects.create(route);
} catch (error) {
  say("again", error.code);
}
await core.deleteNamespacedConfigMap({ namespace, name: "one" });
for (let i = 0; i < 100 && !(seen.length >= 3 && informed.length >= 4); i++) {
  await new Promise((resolve) => setTimeout(resolve, 50));
}
say("watched", seen);
say("informed", informed);
request.abort();
await informer.stop();
process.exit(0);
