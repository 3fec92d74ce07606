"""FLICKR-AES: which workers are drawn, and their photographs."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tffpers.datasets import flickr_aes_report, load_flickr_aes

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get('TFFPERS_DATA', ROOT.parent / 'shared' / 'data'))
needs_data = pytest.mark.skipif(
  not DATA.is_dir(), reason=f'no development data: set TFFPERS_DATA or provide {DATA.name}'
)
CSV = 'FLICKR-AES_image_labeled_by_each_worker.csv'
SMALL = {'min_ratings': 10, 'max_ratings': 20, 'image_size': 8}


def photograph(number):
  """Red above green above blue, a black left margin; brighter by the number."""
  image = np.zeros([36, 24, 3], np.uint8)
  for channel in range(3):
    image[12 * channel : 12 * channel + 12, 6:, channel] = 100 + number
  return image


def write_images(folder, count):
  (folder / '40K').mkdir(exist_ok=True)
  for number in range(count):
    # Lossless, so that values can be compared; the content tells the format.
    content = tf.io.encode_png(photograph(number)).numpy()
    (folder / '40K' / f'farm1_{number}.jpg').write_bytes(content)


def write_ratings(folder, workers):
  """From `{worker: [(number of the image, score)]}`."""
  lines = ['worker, imagePair, score']
  for worker, ratings in workers.items():
    lines += [f'{worker},farm1_{number}.jpg,{score}' for number, score in ratings]
  (folder / CSV).write_text('\n'.join(lines) + '\n')


def ratings(count, start=0, scores=(1, 2, 3, 4, 5)):
  return [(start + k, scores[k % len(scores)]) for k in range(count)]


@pytest.fixture
def folder(tmp_path):
  """Workers of 10, 15 and 20 ratings; one of too few, one of too many, one without 2 and 4."""
  write_images(tmp_path, 25)
  write_ratings(
    tmp_path,
    {
      'few': ratings(9),
      'b': ratings(15, 3),
      'many': ratings(21),
      'a': ratings(10, 7),
      'partial': ratings(12, 0, (1, 3, 5)),
      'c': ratings(20),
    },
  )
  return tmp_path


def images(x):
  return np.rint(x[:, 0, -1, 0] * 255 - 100).astype(int).tolist()


def test_workers_of_60_to_290_ratings_and_all_scores_are_kept_and_the_rest_told_why(folder):
  report = flickr_aes_report(folder, num_clients=3, min_ratings=10, max_ratings=20)
  assert report.clients_read == 6 and report.clients_kept == ('a', 'b', 'c')
  assert report.clients_dropped == {
    'few': '9 ratings, fewer than 10',
    'many': '21 ratings, more than 20',
    'partial': 'no rating of 2, 4',
  }
  assert report.clients_drawn == ('a', 'b', 'c')
  assert (report.ratings_read, report.train_ratings, report.test_ratings) == (87, 36, 9)
  assert report.rule.startswith('10 to 20 ratings')


def test_the_papers_limits_are_the_default(tmp_path):
  sizes = {'w59': 59, 'w60': 60, 'w290': 290, 'w291': 291}
  write_ratings(tmp_path, {key: ratings(size) for key, size in sizes.items()})
  assert flickr_aes_report(tmp_path, num_clients=2).clients_kept == ('w290', 'w60')


def test_d10_80_percent_of_a_workers_ratings_train_and_each_is_in_one_part(folder):
  train, test = load_flickr_aes(folder, num_clients=3, **SMALL)
  assert train.client_ids == test.client_ids == ['a', 'b', 'c']
  for key, count, start in (('a', 10, 7), ('b', 15, 3), ('c', 20, 0)):
    assert train.num_examples(key) == count * 4 // 5
    loaded = [part.load(key) for part in (train, test)]
    found = [pair for x, y in loaded for pair in zip(images(x), y.tolist(), strict=True)]
    assert sorted(found) == [(number, score - 1) for number, score in ratings(count, start)]


def test_d14_images_are_upright_red_green_blue_floats_of_the_size_asked_for(folder):
  train, test = load_flickr_aes(folder, num_clients=1, **SMALL | {'image_size': 9})
  for part in (train, test):
    x, y = part.load(part.client_ids[0])
    assert (x.dtype, y.dtype, x.shape[1:]) == (np.float32, np.int32, (9, 9, 3))
    assert x.min() >= 0 and x.max() <= 1
    for row, channel in ((0, 0), (4, 1), (8, 2)):
      assert (x[:, row, 8, channel] > 0.39).all() and (x[:, row, 0, channel] < 0.1).all()
      assert (np.delete(x[:, row, 8], channel, axis=-1) < 0.01).all()


def test_no_resizing_leaves_every_byte_as_it_is(tmp_path):
  (tmp_path / '40K').mkdir()
  pixels = np.random.default_rng(0).integers(0, 256, [10, 8, 8, 3], np.uint8)
  for number, image in enumerate(pixels):
    content = tf.io.encode_png(image).numpy()
    (tmp_path / '40K' / f'farm1_{number}.jpg').write_bytes(content)
  write_ratings(tmp_path, {'a': ratings(10)})
  train, test = load_flickr_aes(tmp_path, num_clients=1, **SMALL)
  x = np.concatenate([part.load('a')[0] for part in (train, test)])
  np.testing.assert_allclose(
    sorted(x.reshape(10, -1).tolist()), sorted((pixels / 255).reshape(10, -1).tolist()), atol=1e-6
  )


def test_d15_draw_and_split_depend_on_the_seed_and_not_on_the_order_of_rows(tmp_path):
  write_images(tmp_path, 12)
  workers = {f'w{k}': ratings(12) for k in range(8)}
  found = {}
  for name, part in (('one', workers), ('two', dict(reversed(workers.items())))):
    write_ratings(tmp_path, part)
    for seed in (0, 1, 2):
      train, _ = load_flickr_aes(tmp_path, num_clients=4, seed=seed, **SMALL)
      found[name, seed] = [(key, images(train.load(key)[0])) for key in train.client_ids]
  for seed in (0, 1, 2):
    assert found['one', seed] == found['two', seed]
  draws = [tuple(key for key, _ in found['one', seed]) for seed in (0, 1, 2)]
  assert len(set(draws)) > 1
  splits = {tuple(numbers) for seed in (0, 1, 2) for _, numbers in found['one', seed]}
  assert len(splits) > 4


def test_an_image_rated_twice_is_in_one_part(tmp_path):
  write_images(tmp_path, 6)
  write_ratings(tmp_path, {'a': ratings(6) + ratings(6, 0, (5, 4, 3, 2, 1))})
  for seed in range(5):
    train, test = load_flickr_aes(tmp_path, num_clients=1, seed=seed, **SMALL)
    numbers = [images(part.load('a')[0]) for part in (train, test)]
    assert not set(numbers[0]) & set(numbers[1])
    assert sorted(numbers[0] + numbers[1]) == sorted([*range(6)] * 2)


def test_images_are_read_when_a_client_is_loaded(folder):
  train, _ = load_flickr_aes(folder, num_clients=3, **SMALL)
  x, _ = train.load('c')
  path = folder / '40K' / f'farm1_{images(x)[0]}.jpg'
  content = path.read_bytes()
  for damaged in (content[:-30], b'no image'):
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=f"client 'c', {path}"):
      train.load('c')
  path.write_bytes(content)
  np.testing.assert_array_equal(train.load('c')[0], x)


def test_missing_images_name_client_and_file_at_once(folder):
  (folder / '40K' / 'farm1_1.jpg').unlink()
  with pytest.raises(FileNotFoundError) as caught:
    load_flickr_aes(folder, num_clients=3, **SMALL)
  words = ["1 of the images that client 'c'", 'farm1_1.jpg', str(folder / '40K'), 'https://github']
  assert all(word in str(caught.value) for word in words)


def test_missing_ratings_name_the_folder_and_the_address(tmp_path):
  with pytest.raises(FileNotFoundError, match=f'No {CSV} in {tmp_path}.*https://github.com/alans'):
    load_flickr_aes(tmp_path)


def test_too_few_workers_are_an_error_that_tells_why(folder):
  words = "Only 3 of 6 workers .*num_clients=4, dropped {'few': '9 ratings, fewer than 10'"
  with pytest.raises(ValueError, match=words):
    load_flickr_aes(folder, num_clients=4, **SMALL)


@pytest.mark.parametrize(
  'text, words',
  [
    ('worker,image,score\n', r"columns \['worker', 'imagePair', 'score'\]. .*'image'"),
    ('', r'with \[\]'),
    ('worker, imagePair, score\na,b.jpg,3\n\na,b.jpg,6\n', r"line 4: \['a', 'b.jpg', '6'\]"),
    ('worker, imagePair, score\na,b.jpg,0\n', 'line 2'),
    ('worker, imagePair, score\na,b.jpg,2.5\n', 'line 2'),
    ('worker, imagePair, score\na,b.j', r"line 2: \['a', 'b.j'\]"),
  ],
)
def test_d8_damaged_ratings_are_refused_by_line(tmp_path, text, words):
  (tmp_path / CSV).write_text(text)
  with pytest.raises(ValueError, match=words):
    load_flickr_aes(tmp_path)


@pytest.mark.parametrize(
  'argument',
  [{'num_clients': 0}, {'image_size': 0}, {'min_ratings': 0}, {'max_ratings': 59}, {'seed': -1}],
)
def test_arguments_are_checked(tmp_path, argument):
  with pytest.raises(ValueError, match='='.join(map(str, *argument.items()))):
    load_flickr_aes(tmp_path, **argument)


@needs_data
def test_development_files():
  folder = DATA / 'formats' / 'flickr_aes'
  train, test = load_flickr_aes(folder, num_clients=3, image_size=32)
  assert len(train) == len(test) == 3
  for part, size in ((train, 48), (test, 12)):
    for key in part.client_ids:
      x, y = part.load(key)
      assert x.shape == (size, 32, 32, 3) and set(y) <= set(range(5))
  assert flickr_aes_report(folder, num_clients=3).clients_read == 4
